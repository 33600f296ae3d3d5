//! `job log`, and how far a job is.

use std::io::{BufRead as _, BufReader};

use serde_json::json;

use super::*;

const HOSTILE: &str = "\u{1b}]0;title\u{7}\u{9b}2J\nforged\u{202e}";

/// A workflow whose job is at work, and the lease of that.
fn at_work(flows: &Flows) -> (String, Value) {
    let id = flows.create(workflow("w", "a"));
    (id, flows.claim(1).remove(0)["lease"].clone())
}

fn say(flows: &Flows, lease: &Value, lines: &[&str]) {
    let note = json!({"lease": lease, "progress": {"percent": 40, "text": HOSTILE}, "log": lines});
    flows.post("/v1/jobs/extend", json!({"leases": [], "notes": [note]}));
}

#[test]
fn a_log_is_shown_and_steers_no_terminal() {
    let flows = Flows::start(&[]);
    let (id, lease) = at_work(&flows);
    let log = |format: &str| {
        tidegate(&flows, &["job", "log", &id, "a", "-o", format])
            .expect(DONE)
            .out
    };
    assert_eq!(
        (
            log("table").as_str(),
            log("json").as_str(),
            log("name").as_str()
        ),
        ("no lines\n", "[]\n", "")
    );
    say(&flows, &lease, &["one", HOSTILE]);
    let table = log("table");
    let lines: Vec<&str> = table.lines().collect();
    assert!(
        lines[0].ends_with("Z  1  one") && lines.len() == 3 && lines[2].starts_with("     "),
        "{table}"
    );
    let shown = tidegate(&flows, &["job", "show", &id, "a", "-o", "table"])
        .expect(DONE)
        .out;
    assert!(shown.contains("progress  40%  \u{FFFD}]0;title"), "{shown}");
    for text in [&table, &log("name"), &shown] {
        assert!(
            !text.contains(['\u{1b}', '\u{7}', '\u{9b}', '\u{202e}']),
            "{text:?}"
        );
    }
    let json: Value = serde_json::from_str(&log("json")).unwrap();
    assert_eq!(
        (&json[1]["text"], &json[1]["attempt"]),
        (&json!(HOSTILE), &json!(1))
    );
    // Of a long log, the last lines.
    for _ in 0..6 {
        say(&flows, &lease, &["x".repeat(16_000).as_str()]);
    }
    let long = tidegate(&flows, &["job", "log", &id, "a"]).expect(DONE);
    assert!(long.json().as_array().unwrap().len() < 6);
    assert!(
        long.error.contains("earlier lines are not kept any more"),
        "{}",
        long.error
    );
    tidegate(&flows, &["job", "log", &id, "b"]).expect(NOT_FOUND);
}

#[test]
fn a_log_is_followed_until_the_job_has_ended() {
    let flows = Flows::start(&[]);
    let (id, lease) = at_work(&flows);
    say(&flows, &lease, &["one"]);
    let mut follow = ask(&flows, &in_json(&["job", "log", &id, "a", "--follow"]));
    let mut child = follow.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || {
        lines
            .next()
            .map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap()["text"].clone())
    };
    assert_eq!(next(), Some("one".into()));
    say(&flows, &lease, &["two", HOSTILE]);
    assert_eq!([next(), next()], [Some("two".into()), Some(HOSTILE.into())]);
    let report = json!({"reports": [{"lease": lease, "outcome": "succeeded"}],
        "notes": [{"lease": lease, "log": ["last"]}]});
    flows.post("/v1/jobs/report", report);
    assert_eq!([next(), next()], [Some("last".into()), None]);
    assert_eq!(child.wait().unwrap().code(), Some(DONE));
    let over = tidegate(&flows, &["job", "log", &id, "a", "--follow", "-o", "table"])
        .expect(DONE)
        .out;
    assert!(
        over.lines().count() == 5 && over.ends_with("  1  last\n"),
        "{over}"
    );
}
