//! What the binary does between a signal to end and the moment when its ports close.

use serde_json::{Value, json};
use tonic_health::pb::health_check_response::ServingStatus;

use super::health::check;
use super::process::Process;
use crate::support::{LIMITS, Limits, ask, await_that, channel, get, http_with, request};

/// Longer than any test: what ends before it has been ended by something else.
const LONG: (&str, &str) = ("TIDEGATE_DRAIN_DELAY", "1h");

fn start(limits: &Limits) -> Process {
    Process::start(&[LONG, ("RUNTIME_ROOT", limits.root()), ("LOG_LEVEL", "info")])
}

/// Waits until `/healthcheck` says that the server is about to end.
fn await_notice(server: &Process) {
    let http = server.address("HTTP");
    await_that("the end is told", || {
        let answer = get(http, "/healthcheck");
        answer.status == 500 && answer.body == "not healthy: the server is about to end\n"
    });
}

async fn ended(server: Process) -> String {
    let (code, log) = tokio::task::spawn_blocking(|| server.end()).await.unwrap();
    assert_eq!(code, Some(0), "{log}");
    log
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn until_the_delay_is_over_health_is_off_and_calls_are_answered() {
    let limits = Limits::new(LIMITS);
    let server = start(&limits);
    let open = channel(server.address("gRPC")).await;
    assert_eq!(check(&open, "").await, Ok(ServingStatus::Serving));
    server.signal("TERM");
    await_notice(&server);
    let new = channel(server.address("gRPC")).await;
    for channel in [&open, &new] {
        // A client that asks after no name must hear of it, too.
        for name in ["", "ratelimit"] {
            assert_eq!(
                check(channel, name).await,
                Ok(ServingStatus::NotServing),
                "{name:?}"
            );
        }
        ask(channel, request("shop", &[&[("named", "x")]]))
            .await
            .unwrap();
    }
    server.signal("TERM");
    let log = ended(server).await;
    assert!(log.contains("a second signal ends the delay"), "{log}");
    assert!(
        ask(&open, request("shop", &[&[("named", "x")]]))
            .await
            .is_err()
    );
}

/// Somebody who tries it out does not wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_interrupt_ends_a_server_at_once_to_which_nobody_is_connected() {
    let server = start(&Limits::new(LIMITS));
    server.signal("INT");
    let log = ended(server).await;
    assert!(log.contains("draining: no client is connected"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_interrupt_leaves_the_delay_to_those_who_are_connected() {
    let limits = Limits::new(LIMITS);
    let server = start(&limits);
    let channel = channel(server.address("gRPC")).await;
    ask(&channel, request("shop", &[&[("named", "x")]]))
        .await
        .unwrap();
    server.signal("INT");
    await_notice(&server);
    ask(&channel, request("shop", &[&[("named", "x")]]))
        .await
        .unwrap();
    drop(channel);
    let log = ended(server).await;
    assert!(log.contains("no client is connected any more"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_status_says_until_when_a_server_drains() {
    let limits = Limits::new(LIMITS);
    let server = Process::start(&[
        LONG,
        ("TIDEGATE_HTTP_ADDR", "127.0.0.1:0"),
        ("RUNTIME_ROOT", limits.root()),
        ("LOG_LEVEL", "info"),
    ]);
    let status = || {
        let host = [("host", "localhost")];
        let answer = http_with(server.address("API"), "GET", "/v1/status", &host, b"");
        serde_json::from_str::<Value>(&answer.body).unwrap()
    };
    let before = status();
    assert_eq!(
        (
            &before["state"],
            &before["drains_until"],
            &before["store"]["counters"]
        ),
        (&json!("ok"), &Value::Null, &json!("memory of this process"))
    );
    server.signal("TERM");
    await_notice(&server);
    let after = status();
    assert_eq!(after["state"], "draining");
    let started = before["started_at"].as_str().unwrap();
    let until = after["drains_until"].as_str().unwrap();
    assert!(
        started < until && before["started_at"] == after["started_at"],
        "{after}"
    );
    server.signal("TERM");
    ended(server).await;
}
