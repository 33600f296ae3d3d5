//! Servers whose store of workflows is not there, or cannot be opened: limits are served all the same.

mod permissions;

use std::net::TcpListener;
use std::process::Command;
use std::time::Instant;

use serde_json::Value;

use super::{Flows, ask, found, redis, workflow};
use crate::operate::process::{Process, redis_cli};
use crate::support::{await_that, get, post, repository, variables};

const SAMPLE: &str =
    r#"{"domain":"sample","descriptors":[{"entries":[{"key":"client","value":"x"}]}]}"#;

#[track_caller]
fn check_limits(http: std::net::SocketAddr) {
    assert_eq!(get(http, "/healthcheck").status, 200);
    assert_eq!(post(http, "/json", SAMPLE).status, 200);
}

/// Every call of `/v1` says why, and readiness says that it is so.
#[track_caller]
pub(super) fn check_unavailable(api: std::net::SocketAddr, reason: &str) {
    let answer = ask(api, "GET", "/v1/workflows", &[], "");
    assert_eq!(answer.status, 503, "{answer:?}");
    assert_eq!(
        answer.header("content-type"),
        Some("application/problem+json")
    );
    let problem: Value = serde_json::from_str(&answer.body).unwrap();
    assert_eq!(problem["code"], "store_unavailable");
    assert!(
        problem["detail"].as_str().unwrap().contains(reason),
        "{problem}"
    );
    let ready = ask(api, "GET", "/readyz", &[], "");
    assert_eq!(
        (ready.status, ready.body.as_str()),
        (503, "the store of workflows cannot be opened\n")
    );
    assert_eq!(ask(api, "GET", "/healthz", &[], "").status, 200);
    assert_eq!(ask(api, "GET", "/v1/version", &[], "").status, 200);
}

/// The server opens its store by itself. Readiness is asked, because calls that fail are logged, and nobody reads the log meanwhile.
#[track_caller]
pub(super) fn await_available(api: std::net::SocketAddr) {
    await_that("the store is open", || {
        ask(api, "GET", "/readyz", &[], "").status == 200
    });
    assert_eq!(ask(api, "GET", "/v1/workflows", &[], "").status, 200);
}

#[test]
fn a_folder_that_cannot_be_made_leaves_limits_alone() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let flows = Flows::start(&[("TIDEGATE_DATA_DIR", file.join("data").to_str().unwrap())]);
    check_limits(flows.server.http());
    check_unavailable(flows.api(), "workflows.db");
    // As soon as it can be opened, it is.
    std::fs::remove_file(&file).unwrap();
    await_available(flows.api());
}

/// A pipe, of which nobody writes the other end, stands for a file on a disk that does not answer. The server said that it was ready, and
/// its log nothing.
#[test]
fn a_file_that_does_not_answer_is_told_of() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("workflows.db");
    assert!(
        Command::new("mkfifo")
            .arg(&file)
            .status()
            .unwrap()
            .success()
    );
    let data = folder.path().to_str().unwrap();
    let server = Process::start(&[
        ("TIDEGATE_HTTP_ADDR", "127.0.0.1:0"),
        ("TIDEGATE_DATA_DIR", data),
    ]);
    assert!(
        server
            .banner
            .contains("workflows.db (not available: see the log)"),
        "{}",
        server.banner
    );
    check_limits(server.address("HTTP"));
    let told = format!(
        "workflows are not available: {}: it has not answered for 2 s",
        file.display()
    );
    check_unavailable(server.address("API"), &told);
    server.signal("TERM");
    // Whoever opens the other end lets the thread go.
    let _ = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&file)
        .unwrap();
    let (code, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains(&told), "{log}");
}

/// One advice for every cause sent the operators of a Redis to TIDEGATE_DATA_DIR, and the reason named the file twice.
#[test]
fn the_advice_fits_the_cause() {
    let log = |more: &[(&str, &str)], reason: &str| {
        let server = Process::start(&[&[("TIDEGATE_HTTP_ADDR", "127.0.0.1:0")], more].concat());
        check_unavailable(server.address("API"), reason);
        server.signal("TERM");
        server.end().1
    };
    let redis = redis();
    redis_cli(
        &redis,
        &[
            "ACL", "SETUSER", "gate", "on", ">secret", "~*", "+incrby", "+expire", "+ping",
        ],
    );
    let url = redis.address().to_string();
    let told = log(
        &[("REDIS_URL", &url), ("REDIS_AUTH", "gate:secret")],
        &format!("redis at {url}: NOPERM"),
    );
    assert!(
        told.contains(
            "Allow its user the commands of workflows (docs/redis-keys.md), see REDIS_AUTH"
        ),
        "{told}"
    );
    assert!(!told.contains("TIDEGATE_DATA_DIR"), "{told}");
    assert!(told.contains("keys and channels `~tg:* &tg:*`"), "{told}");
    let told = log(
        &[
            ("REDIS_URL", &url),
            ("TIDEGATE_STORE_URL", &url),
            ("TIDEGATE_STORE_AUTH", "gate:wrong"),
        ],
        "WRONGPASS",
    );
    assert!(
        told.contains("it does not accept the user or the password, see TIDEGATE_STORE_AUTH"),
        "{told}"
    );

    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    std::fs::write(folder.path().join("workflows.db"), "text ".repeat(1_000)).unwrap();
    let damaged = format!(
        "workflows are not available: {data}/workflows.db cannot be read: file is not a database"
    );
    let told = log(&[("TIDEGATE_DATA_DIR", data)], &damaged);
    assert!(
        told.contains("Set TIDEGATE_DATA_DIR to a folder that this server can write"),
        "{told}"
    );
}

/// Each call that failed was a line: one client filled the disk with 10 MB a second.
#[test]
fn calls_that_fail_do_not_fill_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let data = file.join("data");
    let server = Process::start(&[
        ("TIDEGATE_HTTP_ADDR", "127.0.0.1:0"),
        ("TIDEGATE_DATA_DIR", data.to_str().unwrap()),
    ]);
    let begun = Instant::now();
    let call = || {
        assert_eq!(
            ask(server.address("API"), "GET", "/v1/workflows", &[], "").status,
            503
        )
    };
    (0..100).for_each(|_| call());
    // Half a minute later there is no second line yet.
    assert_eq!(get(server.address("debug"), "/clock/30").status, 200);
    call();
    let most = (begun.elapsed().as_secs() as usize + 30) / 60 + 1;
    server.signal("TERM");
    let (_, log) = server.end();
    let lines = log
        .lines()
        .filter(|line| line.contains("a request was not served"))
        .count();
    assert!((1..=most).contains(&lines), "{lines} of {most}: {log}");
}

#[test]
fn the_first_call_makes_the_store() {
    let flows = Flows::start(&[]);
    assert!(!flows.data.path().join("data").exists());
    assert_eq!(flows.ask("GET", "/v1/version", &[], "").status, 200);
    assert!(!flows.data.path().join("data").exists());
    assert_eq!(flows.ask("GET", "/v1/workflows", &[], "").status, 200);
    assert!(flows.data.path().join("data/workflows.db").exists());
}

/// One Redis had to be volatile for counters and durable for workflows, and two environments in one Redis were one.
#[test]
fn workflows_have_a_redis_and_a_prefix_of_their_own() {
    let (counters, store) = (redis(), redis());
    let (count, keep) = (counters.address().to_string(), store.address().to_string());
    let of = |prefix| {
        let own = [
            ("TIDEGATE_STORE_URL", keep.as_str()),
            ("TIDEGATE_STORE_PREFIX", prefix),
        ];
        Flows::start(&[&[("REDIS_URL", count.as_str())], &own[..]].concat())
    };
    let stats = |redis| redis_cli(redis, &["INFO", "commandstats"]);
    let flows = of("prod:");
    assert_eq!(
        flows.server.started.workflows,
        Some(format!("redis at {keep}, prefix prod:"))
    );
    check_limits(flows.server.http());
    assert!(
        !stats(&counters).contains("cmdstat_hmget"),
        "{}",
        stats(&counters)
    );
    assert!(
        stats(&store).contains("cmdstat_hmget:calls=1,"),
        "{}",
        stats(&store)
    );
    assert_eq!(redis_cli(&store, &["DBSIZE"]).trim(), "0");
    let id = flows.create(workflow("w", "a"));
    redis_cli(&counters, &["FLUSHALL"]);
    assert_eq!(
        flows.get(&format!("/v1/workflows/{id}"))["status"],
        "running"
    );
    check_limits(flows.server.http());
    let keys = |redis| {
        redis_cli(redis, &["KEYS", "*"])
            .split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert!(
        keys(&store).iter().all(|key| key.starts_with("prod:")),
        "{:?}",
        keys(&store)
    );
    assert!(
        keys(&counters).iter().all(|key| !key.starts_with("prod:")),
        "{:?}",
        keys(&counters)
    );
    let test = of("test:");
    assert_eq!(
        test.ask("GET", &format!("/v1/workflows/{id}"), &[], "")
            .status,
        404
    );
    assert_eq!((test.claim(1).len(), flows.claim(1).len()), (0, 1));
}

#[test]
fn workflows_stay_in_a_file_although_counters_are_in_redis() {
    let redis = redis();
    let flows = Flows::start(&[
        ("REDIS_URL", &redis.address().to_string()),
        ("TIDEGATE_STORE_URL", "file"),
    ]);
    check_limits(flows.server.http());
    flows.create(workflow("w", "a"));
    assert!(flows.data.path().join("data/workflows.db").exists());
    assert_eq!(redis_cli(&redis, &["EXISTS", "tg:meta"]).trim(), "0");
}

/// The warnings came with the first workflow, and one of them twice.
#[test]
fn what_redis_may_lose_is_said_at_the_start_and_once() {
    let redis = redis();
    redis_cli(
        &redis,
        &["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"],
    );
    redis_cli(&redis, &["CONFIG", "SET", "save", ""]);
    let url = redis.address().to_string();
    let settings = [
        ("TIDEGATE_HTTP_ADDR", "127.0.0.1:0"),
        ("REDIS_URL", &url),
        ("REDIS_SOCKET_TYPE", "tcp"),
    ];
    let server = |called: bool| {
        let server = Process::start(&settings);
        let risks = || {
            found(ask(server.address("API"), "GET", "/v1/status", &[], ""))["workflows"]["risks"]
                .clone()
        };
        await_that("they are shown", || {
            risks().as_array().is_some_and(|risks| risks.len() == 2)
        });
        let asked = || {
            let stats = redis_cli(&redis, &["INFO", "commandstats"]);
            let line = stats
                .lines()
                .find(|line| line.starts_with("cmdstat_config") && !line.contains("set"));
            line.and_then(|line| line.split(',').next())
                .map(str::to_owned)
        };
        let before = asked();
        if called {
            assert_eq!(
                ask(server.address("API"), "GET", "/v1/workflows", &[], "").status,
                200
            );
            await_that("the store is open, and asked again", || asked() != before);
        }
        server.signal("TERM");
        let log = server.end().1;
        let lines = |text: &str| log.lines().filter(|line| line.contains(text)).count();
        (
            lines("Set maxmemory-policy noeviction"),
            lines("keeps nothing on disk"),
            log,
        )
    };
    for called in [false, true] {
        let (evicts, forgets, log) = server(called);
        assert_eq!((evicts, forgets), (1, 1), "called: {called}: {log}");
    }
}

/// A server that nobody asked for workflows wrote to Redis, and sent it 132 commands a second.
#[test]
fn a_redis_that_nobody_asked_for_workflows_is_looked_at_once() {
    let redis = redis();
    let flows = Flows::on(&redis);
    check_limits(flows.server.http());
    assert_eq!(redis_cli(&redis, &["EXISTS", "tg:meta"]).trim(), "0");
    let stats = redis_cli(&redis, &["INFO", "commandstats"]);
    assert!(stats.contains("cmdstat_hmget:calls=1,"), "{stats}");
    // What it keeps is asked for at the same time, to warn of it.
    for command in ["hsetnx", "script", "zrange", "hgetall"] {
        assert!(
            !stats.contains(&format!("cmdstat_{command}")),
            "{command}: {stats}"
        );
    }
    assert_eq!(flows.ask("GET", "/v1/workflows", &[], "").status, 200);
    assert_eq!(redis_cli(&redis, &["EXISTS", "tg:meta"]).trim(), "1");
    // One that exists is opened at the start.
    let second = Flows::on(&redis);
    await_that("it is open", || {
        redis_cli(&redis, &["INFO", "commandstats"]).contains("cmdstat_zrange")
    });
    drop(second);
}

/// Two servers on one host, as two gateways that count in one Redis, collided on port 7070. The address must be the default here:
/// another one was asked for by name.
#[test]
fn a_default_port_of_the_api_that_is_taken_is_a_warning() {
    let redis = redis();
    let url = redis.address().to_string();
    let mut settings = variables(&[("REDIS_URL", &url), ("REDIS_SOCKET_TYPE", "tcp")]);
    settings.retain(|(name, _)| name != "TIDEGATE_HTTP_ADDR");
    let start =
        |settings| Process::start_in(Command::new(env!("CARGO_BIN_EXE_tidegate")), settings);
    // If the first does not get the port, something else has it.
    let (first, second) = (start(settings.clone()), start(settings));
    check_limits(first.address("HTTP"));
    check_limits(second.address("HTTP"));
    assert!(
        !second.banner.contains("API") && !second.banner.contains("workflows"),
        "{}",
        second.banner
    );
    second.signal("TERM");
    let (code, log) = second.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(
        log.contains("workflows are off: another process") && log.contains("TIDEGATE_HTTP_ADDR"),
        "{log}"
    );
}

#[test]
fn a_port_of_the_api_that_was_asked_for_and_is_taken_ends_the_start() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    let output = command
        .env_clear()
        .envs(variables(&[("TIDEGATE_HTTP_ADDR", &address)]))
        .output()
        .unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{log}");
    assert!(
        log.contains("the API (TIDEGATE_HTTP_ADDR) listener cannot bind"),
        "{log}"
    );
}

/// It served the store that was gone, and what it acknowledged was not found by others.
#[test]
fn a_store_that_was_made_anew_with_other_partitions_is_opened_again() {
    let redis = redis();
    let url = redis.address().to_string();
    let flows = Flows::start(&[
        ("REDIS_URL", &url),
        ("REDIS_SOCKET_TYPE", "tcp"),
        ("TIDEGATE_PARTITIONS", "64"),
    ]);
    flows.create(workflow("w", "a"));
    redis_cli(&redis, &["FLUSHALL"]);
    // Another server, with other settings, makes the store.
    let other = Flows::on(&redis);
    await_that("both serve the store", || {
        let serves = |flows: &Flows| {
            let created = flows.ask(
                "POST",
                "/v1/workflows",
                &[],
                &workflow("w", "a").to_string(),
            );
            (200..300).contains(&created.status).then(|| {
                let id = serde_json::from_str::<Value>(&created.body).unwrap()["id"]
                    .as_str()
                    .unwrap()
                    .to_owned();
                other
                    .ask("GET", &format!("/v1/workflows/{id}"), &[], "")
                    .status
            })
        };
        let answers = [&flows, &other].map(serves);
        assert!(
            !answers.contains(&Some(404)),
            "what was acknowledged is found"
        );
        answers == [Some(200); 2]
    });
    check_limits(flows.server.http());
}
