//! What people see on a terminal, and programs on a pipe.

use super::*;
use crate::support::await_that;

/// The lines of a command on a terminal, without colours.
fn seen(flows: &Flows, columns: u16, arguments: &[&str]) -> Vec<String> {
    let (code, text) = on_terminal(&mut ask(flows, arguments), columns);
    assert_eq!(code, Some(DONE), "{text}");
    plain(&text).lines().map(str::to_owned).collect()
}

#[test]
fn terminals_and_pipes_get_tables_and_programs_ask_for_json() {
    let flows = Flows::start(&[]);
    let id = failing(&flows);
    work(&flows);
    let lines = seen(&flows, 100, &["workflow", "list"]);
    assert!(
        lines[0].starts_with("ID ") && lines[0].contains("STATUS"),
        "{lines:?}"
    );
    assert!(
        lines[1].starts_with(&format!("{}  broken  failed  0/2, 1 failed", &id[..12])),
        "{lines:?}"
    );
    let (_, coloured) = on_terminal(&mut ask(&flows, &["workflow", "list"]), 100);
    assert!(
        coloured.contains("\u{1b}[31mfailed\u{1b}[0m"),
        "{coloured:?}"
    );
    let (_, plain) = on_terminal(ask(&flows, &["workflow", "list"]).env("NO_COLOR", "1"), 100);
    assert!(!plain.contains('\u{1b}'), "{plain:?}");
    let listed = tidegate(&flows, &["workflow", "list", "-o", "json"]).expect(DONE);
    assert_eq!(listed.json()[0]["id"], *id);
    let table = run(&mut ask(&flows, &["workflow", "list"]));
    assert!(
        table.out.starts_with("ID ") && !table.out.contains('\u{1b}'),
        "{table:?}"
    );
}

#[test]
fn show_draws_the_graph_with_its_states_and_says_why() {
    let flows = Flows::start(&[]);
    let id = failing(&flows);
    work(&flows);
    let lines = seen(&flows, 100, &["workflow", "show", &id]);
    let text = lines.join("\n");
    assert!(
        lines
            .iter()
            .any(|line| line.contains("fetch") && line.contains("→") && line.contains("send")),
        "{text}"
    );
    assert!(text.contains("ValueError: no such thing"), "{text}");
    let ascii = on_terminal(
        ask(&flows, &["workflow", "graph", &id]).env("LANG", "C"),
        100,
    )
    .1;
    assert!(ascii.is_ascii() && ascii.contains("fetch"), "{ascii}");
    let only = seen(
        &flows,
        100,
        &["workflow", "show", &id, "--no-graph", "--jobs", "failed"],
    )
    .join("\n");
    assert!(
        !only.contains('→') && only.contains("fetch") && !only.contains("send "),
        "{only}"
    );
    tidegate(
        &flows,
        &["workflow", "show", &id, "-o", "table", "--jobs", "odd"],
    )
    .expect(USAGE)
    .says("possible values: all, none");
}

#[test]
fn a_narrow_terminal_wraps_and_loses_nothing() {
    let flows = Flows::start(&[]);
    let name = "a-name-that-takes-its-place-and-that-of-others";
    let id = flows.create(workflow(name, "a"));
    let lines = seen(&flows, 80, &["workflow", "list"]);
    assert!(
        lines.iter().all(|line| line.chars().count() <= 80) && lines.len() > 2,
        "{lines:?}"
    );
    assert!(lines[1].starts_with(&id[..12]), "{lines:?}");
    let parts = lines[1..]
        .iter()
        .map(|line| line[14..].split_whitespace().next().unwrap_or_default());
    assert_eq!(parts.collect::<String>(), name, "{lines:?}");
    let wide = seen(&flows, 80, &["workflow", "list", "-o", "wide"]);
    assert!(wide[1].contains(name), "{wide:?}");
}

#[test]
fn why_a_job_waits_has_lines_of_its_own_and_all_of_it_is_there() {
    let flows = Flows::start(&[]);
    let parents: Vec<String> = (0..150)
        .map(|number| format!("a-parent-with-a-long-name-{number}"))
        .collect();
    let id = flows.create(workflow(
        "w",
        &format!("{} last<{}", parents.join(" "), parents.join(",")),
    ));
    let why = flows.get(&format!("/v1/workflows/{id}/jobs/last"))["why_not_running"]["text"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(why.ends_with("and 147 more"), "{why}");
    let lines = seen(
        &flows,
        80,
        &["workflow", "show", &id, "--no-graph", "--jobs", "waiting"],
    );
    assert!(
        lines.iter().all(|line| line.chars().count() <= 80),
        "{lines:?}"
    );
    let at = lines
        .iter()
        .position(|line| line.starts_with("last "))
        .unwrap();
    let told: Vec<&str> = lines[at + 1..]
        .iter()
        .map(|line| line.trim_start())
        .collect();
    assert!(
        told.len() > 1 && lines[at + 1].starts_with("    "),
        "{lines:?}"
    );
    assert_eq!(told.join(" ").trim_end(), why);
    // A graph that is too wide to draw is a list, and loses nothing either.
    let graph = seen(&flows, 30, &["workflow", "graph", &id]);
    assert!(
        graph.iter().all(|line| line.chars().count() <= 30),
        "{graph:?}"
    );
    let words: Vec<&str> = graph
        .iter()
        .flat_map(|line| line.split_whitespace())
        .collect();
    assert!(words.join(" ").contains("and 147 more"), "{graph:?}");
}

#[test]
fn line_breaks_in_params_and_errors_stay() {
    let flows = Flows::start(&[]);
    let params = r#"{"name":"w","jobs":[{"name":"a","handler":"h","params":{
  "t": 1,
  "u\u001b": "\u0007"
}}]}"#;
    let created = flows.ask("POST", "/v1/workflows", &[], params);
    let id = serde_json::from_str::<Value>(&created.body).unwrap()["id"]
        .as_str()
        .unwrap()
        .to_owned();
    for job in flows.claim(1) {
        let error = serde_json::json!({"kind": "E", "message": "one\ntwo\u{1b}[2J", "trace": "at a\n\tat b"});
        let report = serde_json::json!({"lease": job["lease"], "outcome": "failed", "error": error, "retry": "never"});
        flows.post("/v1/jobs/report", serde_json::json!({"reports": [report]}));
    }
    let text = seen(&flows, 80, &["job", "show", &id, "a"]).join("\n");
    assert!(
        text.contains("params    {\n            \"t\": 1,\n"),
        "{text}"
    );
    assert!(
        text.contains("\n  E: one\n  two\u{fffd}[2J\n    at a\n        at b"),
        "{text}"
    );
    let text = seen(&flows, 80, &["workflow", "show", &id, "--no-graph"]).join("\n");
    assert!(text.contains("\n    E: one\n    two\u{fffd}[2J"), "{text}");
}

#[test]
fn progress_is_one_line_that_fits_and_goes_away() {
    let flows = Flows::start(&[]);
    let id = flows.create(workflow("w", "a b<a"));
    let (code, text) = on_terminal(
        &mut ask(&flows, &["workflow", "watch", &id, "--timeout", "50ms"]),
        30,
    );
    assert_eq!(code, Some(TIMED_OUT));
    let (bar, rest) = text
        .split_once('\n')
        .map_or((text.as_str(), ""), |(bar, rest)| (bar, rest));
    let drawn: Vec<&str> = bar.split("\r\u{1b}[2K").collect();
    assert_eq!(drawn.len(), 3, "drawn once and cleared: {text:?}");
    assert!(
        plain(drawn[1]).chars().count() < 30 && drawn[1].contains('░'),
        "{text:?}"
    );
    assert!(
        plain(drawn[2]).starts_with(&format!("{id}  w  running: ")),
        "{text:?}"
    );
    assert_eq!(rest, "");
    // Everywhere the first number is of the jobs that succeeded.
    let failed = failing(&flows);
    work(&flows);
    let watched = tidegate(&flows, &["workflow", "watch", &failed, "-o", "table"]).expect(FAILED);
    assert!(
        watched
            .out
            .ends_with("failed  50%  0/2 succeeded, 1 failed, 1 blocked\n"),
        "{watched:?}"
    );
}

#[test]
fn run_shows_progress_and_how_it_ended() {
    let flows = Flows::start(&[]);
    let files = Files::new(&[(
        "a.yaml",
        "name: n\njobs:\n- {name: a, handler: bad}\n- {name: b, handler: h, after: a}\n",
    )]);
    let command = &mut ask(&flows, &["workflow", "run", &files.text("a.yaml")]);
    let (code, text) = std::thread::scope(|scope| {
        let ended = scope.spawn(|| on_terminal(command, 100));
        await_that("it has failed", || {
            work(&flows);
            flows.get("/v1/workflows:count")["by_status"]["failed"] == 1
        });
        ended.join().unwrap()
    });
    assert_eq!(code, Some(FAILED), "{text}");
    let (first, rest) = text.split_once('\n').unwrap();
    assert!(plain(first).ends_with("  running  n"), "{text:?}");
    let end = plain(rest.rsplit("\r\u{1b}[2K").next().unwrap());
    let (line, hint) = end.split_once('\n').unwrap();
    assert!(
        line.contains("  n  failed in ") && line.ends_with(": 0 succeeded, 1 failed, 1 blocked"),
        "{text:?}"
    );
    assert!(hint.contains("--jobs failed` shows why"), "{text:?}");
}

#[test]
fn names_cannot_steer_the_terminal() {
    let flows = Flows::start(&[]);
    let mut body = workflow("w\u{202e}x", "a\u{2066}b");
    body["jobs"][0]["params"] = serde_json::json!({"p\u{202e}": 1});
    body["jobs"][0]["handler"] = "bad".into();
    let id = flows.create(body);
    for job in flows.claim(1) {
        let error =
            serde_json::json!({"kind": "E\u{1b}[2J", "message": "m\u{7}\n", "trace": "t\u{9b}"});
        let report = serde_json::json!({"lease": job["lease"], "outcome": "failed", "error": error, "retry": "never"});
        flows.post("/v1/jobs/report", serde_json::json!({"reports": [report]}));
    }
    for arguments in [
        &["workflow", "show", &id][..],
        &["workflow", "list"],
        &["job", "show", &id, "a\u{2066}b"],
        &["job", "list", &id],
    ] {
        let text = seen(&flows, 200, arguments).join("\n");
        assert!(text.contains('\u{fffd}'), "{arguments:?}: {text:?}");
        let steers = |c: char| {
            (c.is_control() && c != '\n')
                || ('\u{202a}'..='\u{202e}').contains(&c)
                || c == '\u{2066}'
        };
        assert!(!text.contains(steers), "{arguments:?}: {text:?}");
    }
}

#[test]
fn nobody_panics_when_the_output_goes_nowhere() {
    let flows = Flows::start(&[]);
    let jobs: Vec<String> = (0..2_000).map(|number| format!("job-{number}")).collect();
    let id = flows.create(workflow("big", &jobs.join(" ")));
    for arguments in [
        &["workflow", "show", &id, "-o", "json"][..],
        &["workflow", "show", &id, "--jobs", "all"],
    ] {
        let mut child = ask(&flows, arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut first = [0; 1];
        child.stdout.take().unwrap().read_exact(&mut first).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(
            (output.status.code(), output.stderr),
            (Some(UNREAD), Vec::new()),
            "{arguments:?}"
        );
    }
    let full = File::options().write(true).open("/dev/full").unwrap();
    let output = ask(&flows, &["workflow", "list"])
        .stdout(full)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let output = output.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(OUTPUT));
    assert!(
        String::from_utf8(output.stderr)
            .unwrap()
            .contains("cannot be written")
    );
}

#[test]
fn help_and_scripts_end_as_other_output_does_when_nobody_can_read_them() {
    for arguments in [
        &["--help"][..],
        &["--version"],
        &["workflow", "list", "-h"],
        &["completion", "bash"],
    ] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = binary(arguments)
            .stdout(full)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
            .wait_with_output()
            .unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(OUTPUT), "{arguments:?}");
        assert!(
            error.starts_with("error: the output cannot be written: "),
            "{arguments:?}: {error}"
        );
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = binary(arguments)
            .stdout(writer)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
            .wait_with_output()
            .unwrap();
        assert_eq!(
            (output.status.code(), output.stderr),
            (Some(UNREAD), Vec::new()),
            "{arguments:?}"
        );
    }
    // A mistake is one even when nobody can be told.
    let full = File::options().write(true).open("/dev/full").unwrap();
    assert_eq!(
        binary(&["workflow", "lst"])
            .stderr(full)
            .status()
            .unwrap()
            .code(),
        Some(USAGE)
    );
}
