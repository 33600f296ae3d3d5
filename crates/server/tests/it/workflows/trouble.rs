//! Stores that refuse writes: little is asked of them, little is logged, and readiness and the status say so.

use std::net::SocketAddr;
use std::process::Command;
use std::thread::park_timeout;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{ask, found, redis, workflow};
use crate::operate::process::Process;
use crate::support::await_that;

/// Leases that end while the store refuses writes.
const LEASES: usize = 2_000;
/// For how long it does, after the leases have ended.
const SPAN: Duration = Duration::from_secs(8);

fn post(api: SocketAddr, path: &str, body: &Value) -> Value {
    found(ask(api, "POST", path, &[], &body.to_string()))
}

fn status(api: SocketAddr) -> Value {
    found(ask(api, "GET", "/v1/status", &[], ""))
}

fn readyz(api: SocketAddr) -> (u16, String) {
    let answer = ask(api, "GET", "/readyz", &[], "");
    (answer.status, answer.body)
}

/// Leases that end in 5 s.
fn lease_all(api: SocketAddr) {
    for _ in 0..LEASES / 1_000 {
        let workflows: Vec<Value> = (0..1_000).map(|_| workflow("w", "a")).collect();
        post(api, "/v1/workflows:batch", &json!({"workflows": workflows}));
    }
    let claim = json!({"queues": ["default"], "worker": "w", "limit": 1_000, "lease": "5s"});
    let mut leased = 0;
    while leased < LEASES {
        leased += post(api, "/v1/jobs/claim", &claim)["jobs"]
            .as_array()
            .unwrap()
            .len();
    }
}

fn ready_jobs(api: SocketAddr) -> u64 {
    let queues = found(ask(api, "GET", "/v1/queues", &[], ""));
    queues["items"][0]["ready"].as_u64().unwrap()
}

/// What the process has used of a core so far.
fn cpu(process: &Process) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.id())).unwrap();
    let fields: Vec<&str> = stat
        .rsplit_once(')')
        .unwrap()
        .1
        .split_whitespace()
        .collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}

/// The time until readiness is as wanted.
fn until_ready(api: SocketAddr, wanted: u16) -> Duration {
    let start = Instant::now();
    await_that("readiness changes", || readyz(api).0 == wanted);
    start.elapsed()
}

/// Refuses writes while leases end. Returns what a second of it cost: commands, as `asked` counts them, and a share of a core.
fn refused(
    process: &Process,
    api: SocketAddr,
    switch: impl Fn(bool),
    asked: impl Fn() -> u64,
) -> (f64, f64) {
    assert_eq!(readyz(api), (200, "ready\n".to_owned()));
    lease_all(api);
    switch(false);
    assert!(until_ready(api, 503) < Duration::from_secs(2));
    assert_eq!(readyz(api), (503, "the store refuses writes\n".to_owned()));
    let told = status(api);
    assert_eq!(
        (&told["limits"], &told["workflows"]["ready"]),
        (&json!("yes"), &json!(false)),
        "{told}"
    );
    assert_eq!(
        (&told["workflows"]["reads"], &told["workflows"]["writes"]),
        (&json!("yes"), &json!("no")),
        "{told}"
    );
    let created = ask(
        api,
        "POST",
        "/v1/workflows",
        &[],
        &workflow("w", "a").to_string(),
    );
    assert_eq!(created.status, 503, "{}", created.body);
    assert!(
        created.body.contains("\"store_unavailable\""),
        "{}",
        created.body
    );
    assert!(
        created.body.contains("\"nothing_done\":true"),
        "{}",
        created.body
    );
    // The leases end now.
    park_timeout(Duration::from_secs(6));
    let (start, used, before) = (Instant::now(), cpu(process), asked());
    park_timeout(SPAN);
    let seconds = start.elapsed().as_secs_f64();
    let cost = (
        (asked() - before) as f64 / seconds,
        (cpu(process) - used).as_secs_f64() / seconds,
    );
    assert_eq!(ready_jobs(api), 0);
    switch(true);
    assert!(until_ready(api, 200) < Duration::from_secs(2));
    await_that("all leases have ended", || ready_jobs(api) == LEASES as u64);
    let told = status(api);
    assert_eq!(
        (&told["workflows"]["writes"], &told["workflows"]["troubles"]),
        (&json!("yes"), &json!([])),
        "{told}"
    );
    cost
}

#[track_caller]
fn check_log(process: Process, partitions: &str, reason: &str) {
    process.signal("TERM");
    let log = process.end().1;
    let lines: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("\"warning\""))
        .collect();
    assert!(lines.len() < 10, "{} lines: {log}", lines.len());
    let told = |text: &str| {
        lines
            .iter()
            .any(|line| line.contains(text) && line.contains(reason))
    };
    let failing = format!("writes fail in partitions {partitions}");
    assert!(told(&failing), "{log}");
    let first = lines
        .iter()
        .find(|line| line.contains("does not work as it should"))
        .expect("it is told");
    assert!(
        first.contains(&failing),
        "the first line tells all: {first}"
    );
    let over = |line: &&str| line.contains("the store of workflows works again");
    assert!(lines.iter().any(over), "as loud as what it ends: {log}");
}

#[test]
fn leases_that_end_while_redis_refuses_writes_cost_little() {
    let redis = redis();
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
    let switch = |writes: bool| {
        let replicas = u8::from(!writes);
        assert_eq!(
            redis.raw(&format!("CONFIG SET min-replicas-to-write {replicas}")),
            "+OK\r\n"
        );
    };
    let (asked, core) = refused(&process, api, switch, || redis.commands_processed());
    println!(
        "{asked:.0} commands a second, {:.1} % of a core",
        core * 100.0
    );
    assert!(asked < 200.0, "{asked} commands a second");
    assert!(core < 0.05, "{core} of a core");
    check_log(process, "0-15", "NOREPLICAS");
}

#[test]
fn leases_that_end_while_the_disk_is_full_cost_little() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap().to_owned();
    let settings = [
        ("TIDEGATE_HTTP_ADDR", "127.0.0.1:0"),
        ("TIDEGATE_DATA_DIR", data.as_str()),
    ];
    let process = Process::start(
        &[
            &settings[..],
            &[("LOG_FORMAT", "json"), ("LOG_LEVEL", "info")],
        ]
        .concat(),
    );
    let api = process.address("API");
    // A write beyond the bound of the file's size fails, and does not end the process.
    let switch = |writes: bool| {
        let bound = if writes {
            "--fsize=unlimited:"
        } else {
            "--fsize=4096:"
        };
        let set = Command::new("prlimit")
            .args(["--pid", &process.id().to_string(), bound])
            .status()
            .unwrap();
        assert!(set.success());
    };
    let (_, core) = refused(&process, api, switch, || 0);
    println!("{:.1} % of a core", core * 100.0);
    assert!(core < 0.05, "{core} of a core");
    check_log(process, "0-3", "disk");
}

/// One call of a rate limit; returns what the status says of limits then.
fn limits_after_a_call(process: &Process, api: SocketAddr) -> Value {
    let body = r#"{"domain":"sample","descriptors":[{"entries":[{"key":"client","value":"me"}]}]}"#;
    let _answer = crate::support::post(process.address("HTTP"), "/json", body);
    status(api)["limits"].clone()
}

#[test]
fn limits_that_their_redis_does_not_count_do_not_work() {
    let redis = redis();
    let url = redis.address().to_string();
    let settings = [
        ("TIDEGATE_HTTP_ADDR", "127.0.0.1:0"),
        ("REDIS_URL", &url),
        ("REDIS_SOCKET_TYPE", "tcp"),
    ];
    let process = Process::start(&settings);
    let api = process.address("API");
    assert_eq!(limits_after_a_call(&process, api), "yes");
    let switch = |replicas: u8| redis.raw(&format!("CONFIG SET min-replicas-to-write {replicas}"));
    switch(1);
    assert_eq!(limits_after_a_call(&process, api), "no");
    switch(0);
    await_that("calls are answered", || {
        limits_after_a_call(&process, api) != "no"
    });
}

#[test]
fn what_could_be_lost_is_in_the_status_and_the_metrics() {
    let redis = redis();
    let url = redis.address().to_string();
    let settings = [
        ("TIDEGATE_HTTP_ADDR", "127.0.0.1:0"),
        ("REDIS_URL", &url),
        ("REDIS_SOCKET_TYPE", "tcp"),
    ];
    let _ = redis.raw("CONFIG SET maxmemory-policy allkeys-lru");
    let process = Process::start(&settings);
    let api = process.address("API");
    found(ask(api, "GET", "/v1/workflows", &[], ""));
    let risks = || {
        status(api)["workflows"]["risks"]
            .as_array()
            .unwrap()
            .clone()
    };
    await_that("risks are known", || !risks().is_empty());
    let told = json!(risks()).to_string();
    assert!(
        told.contains("Set appendonly yes") && told.contains("Set maxmemory-policy noeviction"),
        "{told}"
    );
    let page = crate::support::get(process.address("debug"), "/metrics").body;
    assert!(
        page.lines()
            .any(|line| line == "tidegate_workflows_store_risks 2"),
        "{page}"
    );
}
