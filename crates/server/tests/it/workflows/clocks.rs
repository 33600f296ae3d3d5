//! Servers on one Redis whose clocks differ: all of them follow the clock of Redis.

use serde_json::{Value, json};
use tidegate_pipeline::test_util::RedisServer;

use super::{ask, found, redis, workflow};
use crate::operate::process::Process;
use crate::support::get;

/// A server whose clock is wrong by so many seconds from its start on, before it opens its store.
fn server(redis: &RedisServer, seconds: i64) -> Process {
    let url = redis.address().to_string();
    let settings = [
        ("TIDEGATE_HTTP_ADDR", "127.0.0.1:0"),
        ("REDIS_URL", &url),
        ("REDIS_SOCKET_TYPE", "tcp"),
    ];
    let server = Process::start(&settings);
    get(server.address("debug"), &format!("/clock/{seconds}"));
    server
}

#[track_caller]
fn post(server: &Process, path: &str, body: Value) -> Value {
    found(ask(
        server.address("API"),
        "POST",
        path,
        &[],
        &body.to_string(),
    ))
}

fn claim(server: &Process, queue: &str, wait: &str) -> Value {
    post(
        server,
        "/v1/jobs/claim",
        json!({"queues": [queue], "worker": "w", "lease": "20s", "wait": wait}),
    )["jobs"]
        .clone()
}

#[test]
fn leases_timers_retention_and_order_follow_the_clock_of_the_store() {
    let redis = redis();
    let (right, ahead) = (server(&redis, 0), server(&redis, 60));
    let mut ids = Vec::new();
    for at in 0..6 {
        let server = if at % 2 == 0 { &ahead } else { &right };
        let body = json!({"name": "w", "jobs": [{"name": "a", "handler": "h", "queue": format!("q{at}")}]});
        ids.push(post(server, "/v1/workflows", body)["id"].clone());
    }
    let listed = found(ask(right.address("API"), "GET", "/v1/workflows", &[], ""));
    let listed: Vec<Value> = listed["items"]
        .as_array()
        .unwrap()
        .iter()
        .rev()
        .map(|item| item["id"].clone())
        .collect();
    assert_eq!(listed, ids, "in the order of their creation");

    let lease = claim(&right, "q1", "0s")[0]["lease"].clone();
    let kept = claim(&right, "q3", "0s")[0]["lease"].clone();
    let mut body = workflow("kept", "a");
    (body["retention"], body["jobs"][0]["queue"]) = (json!("30s"), json!("kept"));
    let ended = post(&right, "/v1/workflows", body)["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let report = |lease: &Value| json!({"reports": [{"lease": lease, "outcome": "succeeded"}]});
    let done = claim(&right, "kept", "5s")[0]["lease"].clone();
    assert_eq!(
        post(&right, "/v1/jobs/report", report(&done))["reports"][0]["status"],
        200
    );

    // A timer of the one is due for the other, and the servers have swept meanwhile.
    for (creates, claims) in [(&ahead, &right), (&right, &ahead)] {
        let body = json!({"name": "t", "jobs": [{"name": "a", "handler": "h", "queue": "late", "wait": "1s"}]});
        post(creates, "/v1/workflows", body);
        assert_eq!(claim(claims, "late", "15s").as_array().unwrap().len(), 1);
    }
    assert_eq!(claim(&ahead, "q1", "0s"), json!([]), "the lease goes on");
    let extended = post(
        &ahead,
        "/v1/jobs/extend",
        json!({"leases": [kept], "lease": "20s"}),
    );
    assert_eq!(extended["leases"][0]["status"], 200, "{extended}");
    for lease in [lease, kept] {
        assert_eq!(
            post(&right, "/v1/jobs/report", report(&lease))["reports"][0]["status"],
            200
        );
    }
    let shown = ask(
        ahead.address("API"),
        "GET",
        &format!("/v1/workflows/{ended}"),
        &[],
        "",
    );
    assert_eq!(shown.status, 200, "it is kept for 30 s");
}

#[test]
fn a_clock_that_is_wrong_is_told_of() {
    let redis = redis();
    let server = server(&redis, -60);
    found(ask(server.address("API"), "GET", "/v1/workflows", &[], ""));
    let name = "tidegate_workflows_clock_skew_microseconds ";
    let page = get(server.address("debug"), "/metrics").body;
    let skew: u64 = page
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .unwrap()
        .parse()
        .unwrap();
    assert!((59_000_000..61_000_000).contains(&skew), "{skew}");
    let status = found(ask(server.address("API"), "GET", "/v1/status", &[], ""));
    let skew = status["workflows"]["clock_skew_ms"].as_i64().unwrap();
    assert!((-61_000..-59_000).contains(&skew), "{skew}");
    server.signal("TERM");
    let (_, log) = server.end();
    assert!(
        log.contains("the clock of this machine is not that of redis"),
        "{log}"
    );
}

/// All timers stood still for as long as the clock was set back, and without a word.
#[test]
fn a_clock_that_is_set_stops_no_timer_of_a_file_and_ends_no_lease() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let server = Process::start(&[
        ("TIDEGATE_HTTP_ADDR", "127.0.0.1:0"),
        ("TIDEGATE_DATA_DIR", data.to_str().unwrap()),
    ]);
    let set = |seconds: i64| drop(get(server.address("debug"), &format!("/clock/{seconds}")));
    let later = |queue: &str| {
        let job = json!({"name": "a", "handler": "h", "queue": queue, "wait": "1s"});
        post(
            &server,
            "/v1/workflows",
            json!({"name": "t", "jobs": [job]}),
        );
    };
    let mut body = workflow("w", "a");
    body["jobs"][0]["queue"] = json!("held");
    post(&server, "/v1/workflows", body);
    let held = claim(&server, "held", "0s")[0]["lease"].clone();
    later("back");
    set(-3_600);
    assert_eq!(claim(&server, "back", "20s").as_array().unwrap().len(), 1);
    set(3_600);
    // Its worker lives, and no sweep that came first has ended its lease.
    later("ahead");
    assert_eq!(claim(&server, "ahead", "20s").as_array().unwrap().len(), 1);
    let extended = post(
        &server,
        "/v1/jobs/extend",
        json!({"leases": [held], "lease": "20s"}),
    );
    assert_eq!(extended["leases"][0]["status"], 200, "{extended}");
    set(0);
    later("again");
    assert_eq!(claim(&server, "again", "20s").as_array().unwrap().len(), 1);
    server.signal("TERM");
    let (_, log) = server.end();
    assert!(
        log.contains("the clock that workflows follow was set"),
        "{log}"
    );
}
