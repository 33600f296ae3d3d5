//! Start, drain, crash.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::watch::Events;
use super::{Flows, ask, found, on_each_store, workflow};
use crate::operate::process::Process;
use crate::support::{PATIENCE, await_that};

#[test]
fn a_drain_ends_waits_at_once_and_empty() {
    on_each_store(|flows| {
        let id = flows.create(workflow("w", "a"));
        flows.claim(1);
        let mut events = Events::of(flows.api(), &id);
        assert!(events.next().is_some());
        std::thread::scope(|scope| {
            let claim = json!({"queues": ["default"], "worker": "w", "wait": "60s"});
            let polls: Vec<_> = (0..5)
                .map(|_| {
                    let claim = claim.clone();
                    scope.spawn(|| flows.post("/v1/jobs/claim", claim))
                })
                .collect();
            let shown = scope.spawn(|| flows.get(&format!("/v1/workflows/{id}?wait=60s")));
            let waiting = || flows.get("/v1/queues")["items"][0]["waiting_workers"] == 5;
            await_that("all wait", waiting);
            let asked = Instant::now();
            flows.server.ask_to_stop();
            for poll in polls {
                assert_eq!(poll.join().unwrap(), json!({"jobs": []}));
            }
            assert_eq!(shown.join().unwrap()["status"], "running");
            while events.next().is_some() {}
            assert!(
                asked.elapsed() < Duration::from_secs(5),
                "{:?}",
                asked.elapsed()
            );
        });
    });
}

#[test]
fn a_killed_server_goes_on_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("deep/data");
    let settings = [
        ("TIDEGATE_HTTP_ADDR", "127.0.0.1:0"),
        ("TIDEGATE_DATA_DIR", data.to_str().unwrap()),
    ];
    let post = |process: &Process, path: &str, body: Value| {
        found(ask(
            process.address("API"),
            "POST",
            path,
            &[],
            &body.to_string(),
        ))
    };
    let claim =
        |wait: &str| json!({"queues": ["default"], "worker": "w", "lease": "5s", "wait": wait});

    let first = Process::start(&settings);
    assert!(
        first.banner.contains(data.to_str().unwrap()),
        "{}",
        first.banner
    );
    let id = post(&first, "/v1/workflows", workflow("w", "a b<a"))["id"].clone();
    let done = post(&first, "/v1/jobs/claim", claim("0s"))["jobs"][0].clone();
    let report = json!({"reports": [{"lease": done["lease"], "outcome": "succeeded", "output": 7}], "claim": claim("0s")});
    let held = post(&first, "/v1/jobs/report", report)["jobs"][0].clone();
    assert_eq!(held["job"], "b");
    first.signal("KILL");
    first.end();

    let second = Process::start(&settings);
    let asked = Instant::now();
    let again = post(&second, "/v1/jobs/claim", claim("20s"))["jobs"][0].clone();
    assert_eq!(
        (
            &again["job"],
            &again["inputs"][0]["output"],
            &again["workflow_id"]
        ),
        (&json!("b"), &json!(7), &id)
    );
    assert!(
        asked.elapsed() < PATIENCE,
        "it comes back when its lease ends"
    );
    let late = post(
        &second,
        "/v1/jobs/report",
        json!({"reports": [{"lease": held["lease"], "outcome": "succeeded"}]}),
    );
    assert_eq!(late["reports"][0]["error"]["code"], "lease_lost", "{late}");
    let end = post(
        &second,
        "/v1/jobs/report",
        json!({"reports": [{"lease": again["lease"], "outcome": "succeeded"}]}),
    );
    assert_eq!(end["reports"][0]["workflow_status"], "succeeded", "{end}");
    second.signal("TERM");
    assert_eq!(second.end().0, Some(0));
}

#[test]
fn two_servers_do_not_share_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let settings = [
        ("TIDEGATE_HTTP_ADDR", "127.0.0.1:0"),
        ("TIDEGATE_DATA_DIR", folder.path().to_str().unwrap()),
    ];
    let first = Process::start(&settings);
    found(ask(first.address("API"), "GET", "/v1/workflows", &[], ""));
    // The limits of the second are served, and its workflows as soon as the first has ended.
    let second = Process::start(&settings);
    let api = second.address("API");
    let file = folder.path().join("workflows.db");
    let reason = format!(
        "workflows are not available: opening {}: it is in use by process",
        file.display()
    );
    super::absent::check_unavailable(api, &reason);
    first.signal("TERM");
    assert_eq!(first.end().0, Some(0));
    super::absent::await_available(api);
    second.signal("TERM");
    let (_, log) = second.end();
    assert!(
        log.contains("workflows.db") && log.contains("TIDEGATE_DATA_DIR"),
        "{log}"
    );
}

#[test]
fn without_an_address_there_is_neither_api_nor_file() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let process = Process::start(&[("TIDEGATE_DATA_DIR", data.to_str().unwrap())]);
    assert!(
        !process.banner.contains("API") && !data.exists(),
        "{}",
        process.banner
    );
}

#[test]
fn readiness_ends_before_the_server_does() {
    let flows = Flows::start(&[("TIDEGATE_DRAIN_DELAY", "1s")]);
    assert_eq!(flows.ask("GET", "/readyz", &[], "").body, "ready\n");
    flows.server.ask_to_stop();
    await_that("it is not ready", || {
        flows.ask("GET", "/readyz", &[], "").status == 503
    });
    assert_eq!(flows.ask("GET", "/healthz", &[], "").status, 200);
}
