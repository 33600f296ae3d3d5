//! `watch` and `run` while things go wrong.

use std::io::{BufRead as _, BufReader};
use std::process::Child;

use super::*;

/// A watch whose words go to a pipe. It ends by itself, so that a test that waits for its words does, too.
fn watch(flows: &Flows, id: &str) -> Child {
    ask(
        flows,
        &in_json(&["workflow", "watch", id, "--timeout", "2m"]),
    )
    .stdout(Stdio::piped())
    .stderr(Stdio::piped())
    .spawn()
    .unwrap()
}

#[test]
fn failed_jobs_are_named_as_they_fail() {
    let flows = Flows::start(&[]);
    let mut body = workflow("w", "a b c<b");
    body["jobs"][0]["handler"] = "bad".into();
    let id = flows.create(body);
    let mut child = watch(&flows, &id);
    let mut errors = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    lines.next().unwrap().unwrap();
    let jobs = flows.claim(10);
    let job = |name: &str| jobs.iter().find(|job| job["job"] == name).unwrap();
    let error = serde_json::json!({"kind": "ValueError", "message": "no such thing\nmore of it"});
    let report = serde_json::json!({"lease": job("a")["lease"], "outcome": "failed", "error": error, "retry": "never"});
    flows.post("/v1/jobs/report", serde_json::json!({"reports": [report]}));
    assert_eq!(
        errors.next().unwrap().unwrap(),
        "job a failed: ValueError: no such thing"
    );
    flows.succeed(job("b"), Value::Null);
    work(&flows);
    assert_eq!(child.wait().unwrap().code(), Some(FAILED));
    assert_eq!(
        errors.map(Result::unwrap).collect::<Vec<_>>(),
        [] as [String; 0]
    );
    // Who comes later is told, too.
    let late = tidegate(&flows, &["workflow", "watch", &id]).expect(FAILED);
    assert_eq!(late.error, "job a failed: ValueError: no such thing\n");
    let (_, text) = on_terminal(&mut ask(&flows, &["workflow", "watch", &id]), 120);
    assert!(
        plain(&text).contains("failed in ") && plain(&text).contains(": 2 succeeded, 1 failed\n"),
        "{text}"
    );
    // Silence is silence.
    assert_eq!(
        tidegate(&flows, &["workflow", "wait", &id])
            .expect(FAILED)
            .error,
        ""
    );
}

#[test]
fn a_restart_of_the_server_is_told_and_survived() {
    let data = tempfile::tempdir().unwrap();
    let folder = ("TIDEGATE_DATA_DIR", data.path().to_str().unwrap());
    // An address of its own: meanwhile nobody else takes its port.
    let flows = Flows::start(&[folder, ("TIDEGATE_HTTP_ADDR", "127.0.0.78:0")]);
    let id = failing(&flows);
    let address = flows.api().to_string();
    let mut child = watch(&flows, &id);
    let mut errors = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    lines.next().unwrap().unwrap();
    flows.server.stop();
    let lost = errors.next().unwrap().unwrap();
    assert!(
        lost.contains(&format!(
            "the connection to http://{address} was lost; trying to reconnect"
        )),
        "{lost}"
    );
    let flows = Flows::start(&[folder, ("TIDEGATE_HTTP_ADDR", &address)]);
    assert_eq!(errors.next().unwrap().unwrap(), "connected again");
    work(&flows);
    assert_eq!(
        errors.next().unwrap().unwrap(),
        "job fetch failed: ValueError: no such thing"
    );
    let last: Value = serde_json::from_str(&lines.last().unwrap().unwrap()).unwrap();
    assert_eq!(
        (child.wait().unwrap().code(), &last["status"]),
        (Some(FAILED), &"failed".into())
    );
}
