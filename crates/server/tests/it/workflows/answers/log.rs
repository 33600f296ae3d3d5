//! What the log says of requests that were not served.

use std::net::SocketAddr;

use serde_json::{Value, json};
use tidegate_pipeline::test_util::RedisServer;

use super::super::{ask, problem, redis, workflow};
use crate::operate::process::Process;

/// A process on this Redis that logs as JSON, and where its API is.
fn logging(redis: &RedisServer) -> (Process, SocketAddr) {
    let url = redis.address().to_string();
    let settings = [
        ("TIDEGATE_HTTP_ADDR", "127.0.0.1:0"),
        ("REDIS_URL", &url),
        ("REDIS_SOCKET_TYPE", "tcp"),
    ];
    let process = Process::start(
        &[
            &settings[..],
            &[("LOG_FORMAT", "json"), ("LOG_LEVEL", "info")],
        ]
        .concat(),
    );
    let api = process.address("API");
    (process, api)
}

/// What the process logged of this request until it ended.
fn lines_of(request: &str, process: Process) -> Vec<Value> {
    process.signal("TERM");
    let log = process.end().1;
    let lines = log.lines().filter(|line| line.contains(request));
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// What a POST with this id of a request answers, which must be 200.
fn post(api: SocketAddr, path: &str, id: &str, body: &Value) -> Value {
    let answer = ask(
        api,
        "POST",
        path,
        &[("x-request-id", id)],
        &body.to_string(),
    );
    assert_eq!(answer.status, 200, "{answer:?}");
    serde_json::from_str(&answer.body).unwrap()
}

/// With one, the store answers but takes no writes.
fn set_min_replicas(redis: &RedisServer, replicas: u8) {
    let set = format!("CONFIG SET min-replicas-to-write {replicas}");
    assert_eq!(redis.raw(&set), "+OK\r\n");
}

/// Leases of two of three jobs; creating and claiming them left no line in the log.
fn leases_of_two(redis: &RedisServer) -> [Value; 2] {
    let (process, api) = logging(redis);
    let three = json!({"workflows": [workflow("w", "a"), workflow("w", "a"), workflow("w", "a")]});
    post(api, "/v1/workflows:batch", "is-served", &three);
    let claim = json!({"queues": ["default"], "worker": "w", "limit": 2});
    let jobs = post(api, "/v1/jobs/claim", "is-served", &claim);
    assert_eq!(
        lines_of("is-served", process),
        [Value::Null; 0],
        "what was served is not logged"
    );
    [0, 1].map(|at| jobs["jobs"][at]["lease"].clone())
}

#[test]
fn the_log_has_one_line_for_all_items_that_were_not_served() {
    let redis = redis();
    let leases = leases_of_two(&redis);
    let ended = leases
        .clone()
        .map(|lease| json!({"lease": lease, "outcome": "succeeded"}));
    let wrong = workflow("w", "a<b");
    let mixed = json!({"workflows": [wrong, workflow("w", "a"), workflow("w", "a")]});
    let all = json!({"action": "cancel", "filter": {"name": "w"}});
    for (path, body, items) in [
        ("/v1/workflows:bulk", all, 3),
        ("/v1/workflows:batch", mixed, 2),
        ("/v1/jobs/report", json!({"reports": ended}), 2),
        ("/v1/jobs/extend", json!({"leases": leases}), 2),
        // Mistakes of the client are the client's to log.
        (
            "/v1/workflows:batch",
            json!({"workflows": [wrong, wrong]}),
            0,
        ),
    ] {
        // A code has one line a minute, so each call has a server of its own.
        let (process, api) = logging(&redis);
        assert_eq!(ask(api, "GET", "/v1/workflows", &[], "").status, 200);
        set_min_replicas(&redis, 1);
        post(api, path, "the-call", &body);
        let lines = lines_of("the-call", process);
        set_min_replicas(&redis, 0);
        assert_eq!(lines.len(), usize::from(items > 0), "{path}: {lines:?}");
        for line in lines {
            let found = json!([line["level"], line["path"], line["items"], line["code"]]);
            assert_eq!(found, json!(["warning", path, items, "store_unavailable"]));
            let detail = line["detail"].as_str().unwrap();
            assert!(detail.contains("NOREPLICAS"), "{line}");
        }
    }
}

#[test]
fn the_log_names_the_request_that_was_not_served() {
    let redis = redis();
    let (process, api) = logging(&redis);
    assert_eq!(ask(api, "GET", "/v1/workflows", &[], "").status, 200);
    drop(redis);
    let headers = [("x-request-id", "who-asks")];
    let answer = ask(api, "GET", "/v1/workflows?name=secret", &headers, "");
    assert_eq!(problem(&answer).1, "store_unavailable");
    let lines = lines_of("who-asks", process);
    let line = lines.first().expect("the log names the request");
    let found = json!([line["level"], line["method"], line["path"], line["code"]]);
    assert_eq!(
        found,
        json!(["warning", "GET", "/v1/workflows", "store_unavailable"])
    );
}
