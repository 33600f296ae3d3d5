//! The server is killed while it writes a large workflow, which it does in pieces.

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use tidegate_pipeline::test_util::RedisServer;

use super::client::Client;
use super::{Served, redis};
use crate::workflows::workflow;

const JOBS: usize = 20_000;
/// Far above what any of it takes.
const LONGEST: Duration = Duration::from_secs(60);

fn large() -> String {
    workflow(
        "large",
        &(0..JOBS)
            .map(|number| format!("j{number}"))
            .collect::<Vec<_>>()
            .join(" "),
    )
    .to_string()
}

fn keys(redis: &RedisServer, pattern: &str) -> Vec<String> {
    let told = redis.raw(&format!("KEYS {pattern}"));
    told.lines()
        .filter(|line| !line.starts_with(['*', '$']))
        .map(str::to_owned)
        .collect()
}

fn number(told: &str) -> usize {
    told.trim().trim_start_matches(':').parse().unwrap()
}

fn rows(redis: &RedisServer) -> usize {
    keys(redis, "*:rq")
        .iter()
        .map(|key| number(&redis.raw(&format!("ZCARD {key}"))))
        .sum()
}

fn client(server: &Served) -> Client {
    Client::new(Arc::new([server.api]), 0, Arc::default())
}

/// Kills a server that creates a workflow at a moment that may be short.
fn kill_when(redis: &RedisServer, server: &mut Served, is_then: impl Fn() -> bool) {
    let begin = Instant::now();
    while begin.elapsed() < LONGEST {
        assert_eq!(
            client(server)
                .ask("GET", "/v1/workflows", "", "")
                .unwrap()
                .0,
            200
        );
        let body = large();
        let mut stream = TcpStream::connect(server.api).unwrap();
        let head = format!(
            "POST /v1/workflows HTTP/1.1\r\nhost: {}\r\ncontent-length: {}\r\n\r\n",
            server.api,
            body.len()
        );
        stream
            .write_all(head.as_bytes())
            .and_then(|()| stream.write_all(body.as_bytes()))
            .unwrap();
        while !is_then() && rows(redis) < JOBS {}
        // What it sends from here on is not done.
        assert_eq!(redis.raw("CLIENT PAUSE 60000 WRITE"), "+OK\r\n");
        server.kill();
        assert_eq!(redis.raw("CLIENT UNPAUSE"), "+OK\r\n");
        if is_then() {
            return;
        }
        keys(redis, "*}:*")
            .iter()
            .for_each(|key| drop(redis.raw(&format!("DEL {key}"))));
        server.start_again();
    }
    panic!("the moment did not come");
}

#[test]
fn a_server_that_dies_before_a_large_workflow_is_there_leaves_what_goes_by_itself() {
    let redis = redis();
    let mut server = Served::start(&[("REDIS_URL", redis.address().to_string())]);
    kill_when(&redis, &mut server, || {
        !keys(&redis, "*:n:*").is_empty() && keys(&redis, "*:w:*").is_empty()
    });
    assert_eq!(server.check_store(), 0);
    for key in keys(&redis, "*:n:*") {
        assert!((1..=600_000).contains(&number(&redis.raw(&format!("PTTL {key}")))));
    }
    server.start_again();
    let (_, listed) = client(&server).ask("GET", "/v1/workflows", "", "").unwrap();
    assert_eq!(listed["items"], json!([]));
    assert_eq!(
        client(&server)
            .ask("POST", "/v1/workflows", "", &large())
            .unwrap()
            .0,
        201
    );
    assert_eq!(rows(&redis), JOBS);
}

#[test]
fn of_a_large_workflow_whose_server_dies_before_its_ready_rows_are_there_another_writes_them() {
    let redis = redis();
    let store = [("REDIS_URL", redis.address().to_string())];
    let mut servers = [Served::start(&store), Served::start(&store)];
    let is_there = || !keys(&redis, "*:w:*").is_empty() && rows(&redis) < JOBS;
    kill_when(&redis, &mut servers[0], is_there);
    // What is still to come is not missing.
    assert_eq!(servers[1].check_store(), 1);
    let (mut worker, mut claimed, begin) = (client(&servers[1]), 0, Instant::now());
    let claim =
        json!({"queues": ["default"], "worker": "w", "limit": 1_000, "lease": "10m", "wait": "1s"})
            .to_string();
    while claimed < JOBS {
        assert!(
            begin.elapsed() < LONGEST,
            "{claimed} of {JOBS} jobs were claimed"
        );
        let (_, told) = worker.ask("POST", "/v1/jobs/claim", "", &claim).unwrap();
        claimed += told["jobs"].as_array().unwrap().len();
    }
    assert_eq!((claimed, rows(&redis)), (JOBS, 0));
    assert_eq!(servers[1].check_store(), 1);
}
