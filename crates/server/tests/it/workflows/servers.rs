//! Several servers on one Redis: they share the work out, wake each other's workers, and cost little while there is nothing to do.

use std::collections::HashSet;
use std::thread::{park_timeout, spawn};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tidegate_pipeline::test_util::RedisServer;

use super::{ask, found, redis};
use crate::operate::process::Process;
use crate::support::await_that;

fn server(redis: &RedisServer) -> Process {
    let url = redis.address().to_string();
    Process::start(&[
        ("TIDEGATE_HTTP_ADDR", "127.0.0.1:0"),
        ("REDIS_URL", &url),
        ("REDIS_SOCKET_TYPE", "tcp"),
    ])
}

#[track_caller]
fn post(server: &Process, path: &str, body: &Value) -> Value {
    found(ask(
        server.address("API"),
        "POST",
        path,
        &[],
        &body.to_string(),
    ))
}

fn create(server: &Process, queue: &str, wait: &str) {
    let job = json!({"name": "a", "handler": "h", "queue": queue, "wait": wait});
    post(
        server,
        "/v1/workflows",
        &json!({"name": "w", "jobs": [job]}),
    );
}

fn claim(server: &Process, queue: &str, wait: &str) -> Vec<Value> {
    let claimed = post(
        server,
        "/v1/jobs/claim",
        &json!({"queues": [queue], "worker": "w", "wait": wait}),
    );
    claimed["jobs"].as_array().unwrap().clone()
}

/// Its parts looked each second, each for itself, whether there was something to do: seven times a second.
#[test]
fn a_server_without_work_sleeps() {
    const SPAN: Duration = Duration::from_secs(10);
    let redis = redis();
    let server = server(&redis);
    create(&server, "q", "1h");
    // What begins with a server is over.
    park_timeout(Duration::from_secs(6));
    let (begin, before) = (Instant::now(), server.waits_of_workflows());
    park_timeout(SPAN);
    let each = (server.waits_of_workflows() - before) as f64 / begin.elapsed().as_secs_f64();
    assert!(each < 5.5, "{each} times a second");
}

/// The numbers of home partitions, by the names of servers, as this one knows them.
fn homes(server: &Process) -> Vec<(String, usize)> {
    let status = found(ask(server.address("API"), "GET", "/v1/status", &[], ""));
    let servers = status["workflows"]["servers"].as_array().unwrap().clone();
    let each = servers.iter().map(|server| {
        (
            server["id"].as_str().unwrap().to_owned(),
            server["home_partitions"].as_array().unwrap().len(),
        )
    });
    each.collect()
}

/// Servers that know of each other.
fn servers(redis: &RedisServer, number: usize) -> Vec<Process> {
    let servers: Vec<Process> = (0..number).map(|_| server(redis)).collect();
    for server in &servers {
        claim(server, "none", "0s");
    }
    for server in &servers {
        await_that("the servers know of each other", || {
            homes(server).len() == number
        });
    }
    servers
}

#[test]
fn a_worker_at_any_server_gets_a_job_at_once() {
    let redis = redis();
    let servers = servers(&redis, 3);
    let each: Vec<usize> = homes(&servers[0])
        .into_iter()
        .map(|(_, homes)| homes)
        .collect();
    assert_eq!(each.iter().sum::<usize>(), 16);
    assert!(each.iter().all(|homes| (4..=6).contains(homes)), "{each:?}");
    let mut picked = Vec::new();
    for turn in 0..9 {
        let (maker, waits) = (&servers[turn % 3], &servers[turn / 3]);
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| claim(waits, "q", "20s"));
            park_timeout(Duration::from_millis(100));
            create(maker, "q", "0s");
            let made = Instant::now();
            assert_eq!(worker.join().unwrap().len(), 1);
            picked.push(made.elapsed());
        });
    }
    picked.sort_unstable();
    // Without word of it, half of them would take five seconds.
    assert!(picked[4] < Duration::from_secs(1), "{picked:?}");
}

/// The server that looks at a timer stops in the middle of everything, for longer than the others believe that it lives.
#[test]
fn a_server_that_is_frozen_holds_nothing_up_and_harms_nothing() {
    const JOBS: usize = 40;
    let redis = redis();
    let servers = servers(&redis, 2);
    let (lives, frozen) = (&servers[0], &servers[1]);
    // In partitions of both.
    for at in 0..JOBS {
        create(&servers[at % 2], "timed", "2s");
    }
    frozen.signal("STOP");
    await_that("the other is alone", || homes(lives).len() == 1);
    let mut leases = HashSet::new();
    let mut jobs = Vec::new();
    while jobs.len() < JOBS {
        let claimed = claim(lives, "timed", "20s");
        assert!(!claimed.is_empty(), "{} of {JOBS}", jobs.len());
        jobs.extend(claimed);
    }
    frozen.signal("CONT");
    assert!(
        jobs.iter()
            .all(|job| leases.insert(job["lease"].as_str().unwrap().to_owned()))
    );
    await_that("it is back", || {
        homes(lives).len() == 2 && homes(frozen).len() == 2
    });
    assert!(claim(frozen, "timed", "0s").is_empty(), "all are leased");
    let reports: Vec<Value> = leases
        .iter()
        .map(|lease| json!({"lease": lease, "outcome": "succeeded"}))
        .collect();
    let reported = post(frozen, "/v1/jobs/report", &json!({ "reports": reports }));
    assert!(
        reported["reports"]
            .as_array()
            .unwrap()
            .iter()
            .all(|one| one["status"] == 200),
        "{reported}"
    );
    let counts = found(ask(
        lives.address("API"),
        "GET",
        "/v1/workflows:count?name=w",
        &[],
        "",
    ));
    assert_eq!(counts["by_status"]["succeeded"], JOBS);
}

/// A worker waits at each of them.
#[test]
fn idle_servers_ask_redis_little() {
    const SPAN: Duration = Duration::from_secs(20);
    let redis = redis();
    let servers = servers(&redis, 2);
    let work = |server: &Process| {
        let api = server.address("API");
        let body = json!({"queues": ["idle"], "worker": "w", "wait": "4s"}).to_string();
        spawn(move || {
            loop {
                let jobs = found(ask(api, "POST", "/v1/jobs/claim", &[], &body))["jobs"]
                    .as_array()
                    .unwrap()
                    .len();
                if jobs > 0 {
                    return jobs;
                }
            }
        })
    };
    let workers: Vec<_> = servers.iter().map(work).collect();
    park_timeout(Duration::from_secs(3));
    let (begin, before) = (Instant::now(), redis.commands_processed());
    park_timeout(SPAN);
    let each = (redis.commands_processed() - before) as f64
        / begin.elapsed().as_secs_f64()
        / servers.len() as f64;
    // One of them reads the overrides of limits.
    assert!(each <= 6.5, "{each} commands a second for each server");
    create(&servers[0], "idle", "0s");
    create(&servers[0], "idle", "0s");
    for worker in workers {
        assert_eq!(worker.join().unwrap(), 1);
    }
}

/// Who ends gives its partitions away at once.
#[test]
fn a_server_that_ends_says_so() {
    let redis = redis();
    let mut servers = servers(&redis, 2);
    let ends = servers.pop().unwrap();
    ends.signal("TERM");
    ends.end();
    let begin = Instant::now();
    await_that("the other is alone", || homes(&servers[0]).len() == 1);
    assert!(
        begin.elapsed() < Duration::from_secs(4),
        "it did not have to wait until that one counts as gone"
    );
}
