//! What ends the start, or is told of at it.

use super::*;

#[test]
fn it_does_not_start_without_what_it_was_told_to_use() {
    let fails = |more: &[(&str, &str)], reason: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        let output = command.env_clear().envs(variables(more)).output().unwrap();
        let log = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{log}");
        assert!(log.contains(reason), "{log}");
        assert!(!log.contains("hunter2"), "{log}");
    };
    fails(
        &[("RUNTIME_ROOT", "/nowhere/at/all")],
        "RUNTIME_ROOT /nowhere/at/all does not exist",
    );
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    fails(
        &[("PORT", &port)],
        "the HTTP listener cannot bind 127.0.0.1",
    );
    let url = format!("redis://u:hunter2@127.0.0.1:{}", free_port());
    let short = ("REDIS_STARTUP_MAX_ELAPSED_TIME", "100ms");
    let first = ("REDIS_STARTUP_INITIAL_INTERVAL", "10ms");
    fails(
        &[("REDIS_URL", &url), short, first],
        "timed out waiting for Redis connection to 127.0.0.1:",
    );
}

/// Limits count in the memory of each process: two processes on one port would double every limit, silently.
#[test]
fn a_second_server_without_redis_does_not_share_a_port() {
    let first = Process::start(&[]);
    for (name, what) in [("GRPC_PORT", "gRPC"), ("PORT", "HTTP")] {
        let port = first.address(what).port().to_string();
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        let output = command
            .env_clear()
            .envs(variables(&[(name, &port)]))
            .output()
            .unwrap();
        let log = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{log}");
        assert!(
            log.contains(&format!("the {what} listener cannot bind")) && log.contains("REDIS_URL"),
            "{log}"
        );
    }
}

/// A wrong password was "unavailable" for ever.
#[test]
fn a_refused_password_is_told_with_the_variable_to_look_at() {
    let redis = crate::workflows::redis();
    redis_cli(
        &redis,
        &[
            "ACL", "SETUSER", "gate", "on", ">right", "~*", "+incrby", "+expire", "+ping",
        ],
    );
    let url = redis.address().to_string();
    let fails = |more: &[(&str, &str)], expected: &str| {
        let settings = [
            ("REDIS_STARTUP_MAX_ELAPSED_TIME", "100ms"),
            ("REDIS_STARTUP_INITIAL_INTERVAL", "10ms"),
        ];
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        let output = command
            .env_clear()
            .envs(variables(&[&settings[..], more].concat()))
            .output()
            .unwrap();
        let log = String::from_utf8(output.stderr).unwrap();
        assert!(
            log.contains("redis refuses this server") && log.contains(expected),
            "{log}"
        );
        assert!(!log.contains("wrong"), "{log}");
    };
    fails(
        &[("REDIS_URL", &url), ("REDIS_AUTH", "gate:wrong")],
        "see REDIS_AUTH",
    );
    let in_url = format!("redis://gate:wrong@{url}");
    fails(
        &[("REDIS_URL", &in_url)],
        "see the user and password in REDIS_URL",
    );
}

/// It was `no redis node is known to own hash slot 0`.
#[test]
fn a_start_without_sentinels_ends_with_their_answers_and_what_to_set() {
    let redis = crate::workflows::redis();
    let (url, short) = (
        format!("m,{}", redis.address()),
        ("REDIS_STARTUP_MAX_ELAPSED_TIME", "100ms"),
    );
    let settings = [
        ("REDIS_URL", url.as_str()),
        ("REDIS_TYPE", "sentinel"),
        short,
    ];
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    let output = command
        .env_clear()
        .envs(variables(&settings))
        .output()
        .unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    let end = log
        .lines()
        .find(|line| line.contains("gave up after"))
        .unwrap_or_else(|| panic!("{log}"));
    let answer = format!("sentinel {}: ERR unknown command", redis.address());
    let advice =
        "what answers is no sentinel: name sentinels in REDIS_URL, or set REDIS_TYPE=single";
    assert!(end.contains(&answer) && end.ends_with(advice), "{end}");
}

/// The advice of the start was missing where the user may PING and not count.
#[test]
fn a_user_that_may_not_count_is_told_of_with_what_it_needs() {
    let redis = crate::workflows::redis();
    redis_cli(
        &redis,
        &["ACL", "SETUSER", "gate", "on", ">right", "~*", "+ping"],
    );
    let (url, limits) = (
        redis.address().to_string(),
        Limits::new(crate::support::LIMITS),
    );
    let settings = [
        ("RUNTIME_ROOT", limits.root()),
        ("REDIS_URL", &url),
        ("REDIS_AUTH", "gate:right"),
    ];
    let server = Process::start(&settings);
    let body = r#"{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"x"}]}]}"#;
    assert_eq!(post(server.address("HTTP"), "/json", body).status, 400);
    server.signal("TERM");
    let (_, log) = server.end();
    assert!(
        log.contains("redis does not count for this server")
            && log.contains("INCRBY and EXPIRE, see REDIS_AUTH"),
        "{log}"
    );
}

#[test]
fn a_debug_port_that_is_taken_is_only_logged() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let server = Process::start(&[("DEBUG_PORT", &port)]);
    assert_eq!(get(server.address("HTTP"), "/healthcheck").status, 200);
    server.signal("TERM");
    let (code, log) = server.end();
    assert_eq!(code, Some(0));
    assert!(log.contains("the debug listener cannot bind"), "{log}");
}
