//! Spans of attempts that end without a report of their worker.

use serde_json::{Value, json};

use super::super::calls::traced;
use super::super::collector::{Answer, Collector, Protocol};
use super::super::messages::{Span, pairs};
use super::{ATTEMPT, named};
use crate::operate::process::Process;
use crate::workflows::{ask, found, workflow};

/// What the attribute of the outcome says.
fn outcome(span: &Span) -> String {
    let pairs = pairs(&span.attributes);
    let outcome = pairs
        .iter()
        .find_map(|pair| pair.strip_prefix("tidegate.outcome="));
    outcome.unwrap().to_owned()
}

/// The clock is that of a process, which is one of its own therefore.
#[test]
fn attempts_that_end_without_a_report_have_spans() {
    let collector = Collector::start(Protocol::Http, Answer::Take);
    let url = collector.url();
    let ours = [
        ("TIDEGATE_HTTP_ADDR", "127.0.0.1:0"),
        ("TIDEGATE_STORE_URL", "memory"),
        ("TIDEGATE_TEST_CLOCK", "true"),
    ];
    let server = Process::start(&[&traced(&url)[..], &ours].concat());
    let api = server.address("API");
    let post = |path: &str, body: Value| found(ask(api, "POST", path, &[], &body.to_string()));
    let claim = || {
        let body = json!({"queues": ["default"], "worker": "w", "lease": "1m"});
        post("/v1/jobs/claim", body)["jobs"][0].take()
    };
    let job = json!({"name": "a", "handler": "h", "timeout": "20s", "retries": 9, "backoff": "0s"});
    let slow = post("/v1/workflows", json!({"name": "slow", "jobs": [job]}));
    claim();
    post("/v1/test/clock:advance", json!({"by": "21s"}));
    let id = slow["id"].as_str().unwrap();
    claim();
    post(&format!("/v1/workflows/{id}:cancel"), json!({}));
    post("/v1/workflows", workflow("lost", "a"));
    let lost = claim();
    post("/v1/test/clock:advance", json!({"by": "61s"}));
    let given_back = claim();
    let back = json!({"reports": [{"lease": given_back["lease"], "outcome": "given_back"}]});
    assert_eq!(post("/v1/jobs/report", back)["reports"][0]["status"], 200);
    assert_ne!(lost["traceparent"], given_back["traceparent"]);

    let spans = collector.spans(6);
    let mut attempts = named(&spans, ATTEMPT);
    attempts.sort_by_key(|span| outcome(span));
    let outcomes: Vec<String> = attempts.iter().map(|span| outcome(span)).collect();
    assert_eq!(
        outcomes,
        ["cancelled", "expired", "given_back", "timed_out"]
    );
    let messages = attempts
        .iter()
        .map(|span| Some(&*span.status.as_ref()?.message));
    let lease = "the worker did not report or extend its lease in time";
    let timeout = "the attempt took longer than its timeout";
    assert!(
        messages.eq([None, Some(lease), None, Some(timeout)]),
        "{attempts:?}"
    );
    let seconds = |at: usize| (attempts[at].end - attempts[at].start) / 1_000_000_000;
    assert!(seconds(1) >= 60 && (20..60).contains(&seconds(3)));
}
