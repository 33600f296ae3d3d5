//! What workers say of their jobs: how far they are, and lines for their logs.

use serde_json::{Value, json};

use super::{Flows, ask, found, on_each_store, redis, workflow};
use crate::operate::process::Process;

fn extend(flows: &Flows, notes: Value) -> Value {
    flows.post("/v1/jobs/extend", json!({"leases": [], "notes": notes}))
}

/// A job of the only workflow, and the path of one of its own.
fn at_work(flows: &Flows) -> (Value, String) {
    let id = flows.create(workflow("w", "a"));
    (
        flows.claim(1).remove(0)["lease"].clone(),
        format!("/v1/workflows/{id}/jobs/a"),
    )
}

fn texts(page: &Value) -> Vec<&str> {
    page["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["text"].as_str().unwrap())
        .collect()
}

fn statuses(items: &Value) -> Vec<u64> {
    items
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["status"].as_u64().unwrap())
        .collect()
}

#[test]
fn a_job_shows_how_far_it_is_and_its_log() {
    on_each_store(|flows| {
        let (lease, job) = at_work(flows);
        assert_eq!(flows.get(&job).get("progress"), None);
        assert_eq!(
            flows.get(&format!("{job}/log")),
            json!({"items": [], "dropped": 0, "next": "0"})
        );
        let without = flows.post("/v1/jobs/extend", json!({"leases": [lease]}));
        assert_eq!(
            without.get("notes"),
            None,
            "who sends none hears nothing of them"
        );
        let hostile = "\u{1b}]0;x\u{7}\r\n\0\u{202e}\"é";
        let notes = json!([
            {"lease": lease, "progress": {"percent": 40, "text": hostile}, "log": ["one", hostile]},
            {"lease": lease, "log": ["three"]},
        ]);
        let said = flows.post(
            "/v1/jobs/extend",
            json!({"leases": [lease], "notes": notes}),
        );
        assert_eq!(
            (statuses(&said["leases"]), statuses(&said["notes"])),
            (vec![200], vec![200, 200])
        );
        let shown = flows.get(&job);
        assert_eq!(
            (&shown["progress"]["percent"], &shown["progress"]["text"]),
            (&json!(40), &json!(hostile))
        );
        assert_eq!(shown["progress"]["attempt"], 1);
        let page = flows.get(&format!("{job}/log"));
        assert_eq!(
            (texts(&page), &page["next"]),
            (vec!["one", hostile, "three"], &json!("3"))
        );
        assert_eq!(page["items"][0]["attempt"], 1);
        assert!(
            page["items"][0]["at"].as_str().unwrap() <= shown["lease_expires_at"].as_str().unwrap()
        );
        // The last words come with the report.
        let report = json!({"reports": [{"lease": lease, "outcome": "succeeded"}],
            "notes": [{"lease": lease, "progress": {"percent": 100}, "log": ["four"]}]});
        let reported = flows.post("/v1/jobs/report", report.clone());
        assert_eq!(
            (statuses(&reported["reports"]), statuses(&reported["notes"])),
            (vec![200], vec![200])
        );
        let again = flows.post("/v1/jobs/report", report);
        assert_eq!(
            (statuses(&again["reports"]), statuses(&again["notes"])),
            (vec![200], vec![409])
        );
        assert_eq!(again["notes"][0]["error"]["code"], "lease_lost");
        assert_eq!(flows.get(&job)["progress"]["percent"], 100);
        assert_eq!(flows.get(&job)["progress"]["text"], "");
        assert_eq!(texts(&flows.get(&format!("{job}/log?after=3"))), ["four"]);
        let full = flows.get(&format!("{}?view=full", job.split("/jobs").next().unwrap()));
        assert_eq!(full["jobs"][0]["progress"]["percent"], 100);
    });
}

#[test]
fn a_wrong_note_is_refused_for_itself() {
    let flows = Flows::start(&[]);
    let (lease, job) = at_work(&flows);
    let lost = lease
        .as_str()
        .unwrap()
        .replace(|c: char| c.is_ascii_digit(), "1");
    let notes = json!([
        {"lease": lease, "log": ["right"]},
        {"lease": lease, "progress": {"percent": 101}},
        {"lease": "x", "log": []},
        {"lease": lost, "log": ["late"]},
        {"lease": lease, "log": ["right, too"]},
        7,
    ]);
    let said = flows.post(
        "/v1/jobs/extend",
        json!({"leases": ["y", lease], "notes": notes}),
    );
    assert_eq!(statuses(&said["leases"]), [422, 200]);
    let each = statuses(&said["notes"]);
    assert_eq!(
        (&each[..3], &each[4..]),
        (&[200, 422, 422][..], &[200, 422][..])
    );
    assert!(each[3] == 409 || each[3] == 404, "{said}");
    let path = |at: usize| said["notes"][at]["error"]["path"].as_str().unwrap();
    assert_eq!(
        [path(1), path(2), path(5)],
        ["notes[1].progress.percent", "notes[2].lease", "notes[5]"]
    );
    assert_eq!(
        texts(&flows.get(&format!("{job}/log"))),
        ["right", "right, too"]
    );
    // What is wrong with the report or with the notes does not stop the other.
    let report = json!({"reports": [{"lease": lease, "outcome": "nonsense"}, {"lease": lease, "outcome": "succeeded"}],
        "notes": [{"lease": lease}, {"lease": lease, "log": ["last"]}]});
    let reported = flows.post("/v1/jobs/report", report);
    assert_eq!(
        (statuses(&reported["reports"]), statuses(&reported["notes"])),
        (vec![422, 200], vec![422, 200])
    );
    assert_eq!(
        texts(&flows.get(&format!("{job}/log"))),
        ["right", "right, too", "last"]
    );
    let many = json!({"leases": [], "notes": vec![json!({"lease": lease, "log": []}); 1_001]});
    assert_eq!(flows.refused("/v1/jobs/extend", many).0, 413);
    let notes = json!({"leases": [], "notes": {"lease": lease}});
    assert_eq!(flows.refused("/v1/jobs/extend", notes).0, 422);
}

#[test]
fn a_log_keeps_its_newest_lines_and_is_read_in_pages() {
    on_each_store(|flows| {
        let (lease, job) = at_work(flows);
        for call in 0..10 {
            let lines: Vec<String> = (0..100)
                .map(|line| format!("{} {}", call * 100 + line, "x".repeat(150)))
                .collect();
            extend(flows, json!([{"lease": lease, "log": lines}]));
        }
        let page = flows.get(&format!("{job}/log?limit=10"));
        let dropped = page["dropped"].as_u64().unwrap();
        assert!((500..900).contains(&dropped), "{dropped}");
        assert!(
            texts(&page)[0].starts_with(&format!("{dropped} x")),
            "{page}"
        );
        let (mut after, mut number) = (page["next"].as_str().unwrap().to_owned(), dropped + 10);
        loop {
            let page = flows.get(&format!("{job}/log?limit=77&after={after}"));
            assert_eq!(page["dropped"], 0);
            if texts(&page).is_empty() {
                break;
            }
            for text in texts(&page) {
                assert!(text.starts_with(&format!("{number} x")), "{number}: {text}");
                number += 1;
            }
            page["next"].as_str().unwrap().clone_into(&mut after);
        }
        assert_eq!((number, after.as_str()), (1_000, "1000"));
        for (path, status) in [
            (format!("{job}/log?after=x"), 400),
            (format!("{job}/log?after=-1"), 400),
            (format!("{job}/log?limit=1001"), 422),
            (format!("{job}/log?tail=1"), 422),
            (job.replace("/jobs/a", "/jobs/b/log"), 404),
            (format!("/v1/workflows/{}/jobs/a/log", "0".repeat(26)), 404),
        ] {
            assert_eq!(flows.ask("GET", &path, &[], "").status, status, "{path}");
        }
    });
}

#[test]
fn two_servers_keep_notes_of_each_others_leases() {
    let redis = redis();
    let (one, other) = (Flows::on(&redis), Flows::on(&redis));
    let (lease, job) = at_work(&one);
    for (flows, line) in [(&other, "there"), (&one, "here"), (&other, "there again")] {
        assert_eq!(
            statuses(&extend(flows, json!([{"lease": lease, "log": [line]}]))["notes"]),
            [200]
        );
    }
    assert_eq!(
        texts(&other.get(&format!("{job}/log"))),
        ["there", "here", "there again"]
    );
    one.post(
        &format!("{}:cancel", job.split("/jobs").next().unwrap()),
        json!({}),
    );
    let late = extend(&other, json!([{"lease": lease, "log": ["late"]}]));
    assert_eq!(statuses(&late["notes"]), [409]);
    assert_eq!(late["notes"][0]["error"]["reason"], "cancelled");
    // They go with the workflow.
    let path = job.split("/jobs").next().unwrap();
    assert_eq!(one.ask("DELETE", path, &[], "").status, 204);
    assert_eq!(other.ask("GET", &format!("{job}/log"), &[], "").status, 404);
    assert!(
        !redis
            .raw("KEYS *")
            .contains(path.rsplit('/').next().unwrap())
    );
}

#[test]
fn a_log_survives_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let settings = [
        ("TIDEGATE_HTTP_ADDR", "127.0.0.1:0"),
        ("TIDEGATE_DATA_DIR", folder.path().to_str().unwrap()),
    ];
    let call = |process: &Process, method: &str, path: &str, body: Value| {
        let body = if method == "GET" {
            String::new()
        } else {
            body.to_string()
        };
        found(ask(process.address("API"), method, path, &[], &body))
    };
    let first = Process::start(&settings);
    let id = call(&first, "POST", "/v1/workflows", workflow("w", "a"))["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let claimed = call(
        &first,
        "POST",
        "/v1/jobs/claim",
        json!({"queues": ["default"], "worker": "w"}),
    );
    let lease = claimed["jobs"][0]["lease"].clone();
    let note = |line: &str| json!({"leases": [], "notes": [{"lease": lease, "progress": {"percent": 7}, "log": [line]}]});
    call(&first, "POST", "/v1/jobs/extend", note("before"));
    first.signal("KILL");
    first.end();
    let second = Process::start(&settings);
    call(&second, "POST", "/v1/jobs/extend", note("after"));
    let log = call(
        &second,
        "GET",
        &format!("/v1/workflows/{id}/jobs/a/log"),
        Value::Null,
    );
    assert_eq!(texts(&log), ["before", "after"]);
    assert_eq!(
        call(
            &second,
            "GET",
            &format!("/v1/workflows/{id}/jobs/a"),
            Value::Null
        )["progress"]["percent"],
        7
    );
    second.signal("TERM");
    second.end();
}
