//! What is logged.

use super::*;

#[test]
fn a_bad_reload_names_file_line_and_column() {
    let limits = Limits::new("domain: shop\n");
    let server = Process::start(&[
        ("RUNTIME_ROOT", limits.root()),
        ("LOG_FORMAT", "json"),
        ("LOG_LEVEL", "info"),
    ]);
    limits.write(
        "limits.yaml",
        "domain: shop\ndescriptors:\n  - key: a\n    rate_limit: {unit: foo}\n",
    );
    let counted = || {
        get(server.address("debug"), "/stats")
            .body
            .contains("config_load_error: 1\n")
    };
    await_that("the bad file is noticed", counted);
    server.signal("TERM");
    let (_, log) = server.end();
    let lines: Vec<serde_json::Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let error = lines.iter().find(|line| line["level"] == "error").unwrap();
    let message = error["@message"].as_str().unwrap();
    let expected =
        "Error loading new configuration: config.limits.yaml:4:24: invalid rate limit unit 'foo'";
    assert!(message.starts_with(expected), "{message}");
    assert!(
        error["@timestamp"].as_str().unwrap().ends_with('Z'),
        "{error}"
    );
    assert!(
        lines
            .iter()
            .any(|line| line["level"] == "info" && line["@message"] == "loaded configuration"),
        "{log}"
    );
}

/// Lines of plain text on standard output broke collectors of JSON.
#[test]
fn with_json_nothing_is_written_to_standard_output() {
    let mut server = Process::start(&[("LOG_FORMAT", "json"), ("LOG_LEVEL", "info")]);
    server.signal("TERM");
    assert_eq!(server.standard_output(), "");
}

/// Pods left their load balancer without a line in the log, and with an empty answer.
#[test]
fn health_that_goes_off_because_of_redis_says_so() {
    let redis = crate::workflows::redis();
    let url = redis.address().to_string();
    let settings = [
        ("REDIS_URL", url.as_str()),
        ("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", "true"),
        ("LOG_LEVEL", "info"),
    ];
    let server = Process::start(&settings);
    let http = server.address("HTTP");
    redis.pause();
    await_that("it is unhealthy", || {
        get(http, "/healthcheck").status == 500
    });
    let told = "not healthy: redis does not answer PING (REDIS_HEALTH_CHECK_ACTIVE_CONNECTION)\n";
    assert_eq!(get(http, "/healthcheck").body, told);
    redis.resume();
    await_that("it is healthy", || get(http, "/healthcheck").status == 200);
    server.signal("TERM");
    let (_, log) = server.end();
    assert!(
        log.contains("health is off: redis does not answer PING")
            && log.contains("health is on again"),
        "{log}"
    );
}

/// Envoy shows no message of the rate limit service, and the server wrote nothing.
#[test]
fn requests_that_are_refused_unread_are_told_of_in_the_log() {
    let limits = Limits::new(crate::support::LIMITS);
    let server = Process::start(&[
        ("RUNTIME_ROOT", limits.root()),
        ("TIDEGATE_MAX_DESCRIPTORS", "1"),
        ("TIDEGATE_CORES", "1"),
    ]);
    for _ in 0..3 {
        let answer = post(
            server.address("HTTP"),
            "/json",
            r#"{"domain":"shop","descriptors":[{},{}]}"#,
        );
        assert_eq!(answer.status, 400);
    }
    server.signal("TERM");
    let (_, log) = server.end();
    let lines = log.lines().filter(|line| {
        line.contains("TIDEGATE_MAX_DESCRIPTORS") && line.contains("failure_mode_deny")
    });
    // A minute may end in between.
    assert!((1..=2).contains(&lines.count()), "{log}");
}

#[test]
fn with_debug_each_decision_has_a_line_without_values() {
    let limits = Limits::new(crate::support::LIMITS);
    for (level, lines) in [("debug", 1), ("info", 0)] {
        let server = Process::start(&[("RUNTIME_ROOT", limits.root()), ("LOG_LEVEL", level)]);
        let entries = r#"[{"key":"user","value":"token-of-ada"}]"#;
        let body = format!(r#"{{"domain":"shop","descriptors":[{{"entries":{entries}}}]}}"#);
        assert_eq!(post(server.address("HTTP"), "/json", &body).status, 200);
        speak_http_2(server.address("gRPC"));
        server.signal("TERM");
        let (_, log) = server.end();
        assert!(!log.contains("frame"), "frames hide the decisions: {log}");
        let found: Vec<_> = log
            .lines()
            .filter(|line| line.contains("decision"))
            .collect();
        assert_eq!(found.len(), lines, "{log}");
        assert!(
            found
                .iter()
                .all(|line| line.contains("shop") && line.contains("[user: Ok, 2 of 3 a")),
            "{log}"
        );
        assert!(!log.contains("token-of-ada"), "{log}");
    }
}

/// Whoever logged waited for the reader: after some five hundred lines nothing was answered, and SIGTERM did not end it.
#[test]
fn a_log_that_nobody_reads_stops_nothing() {
    let limits = Limits::new(crate::support::LIMITS);
    let mut server = Process::start(&[("RUNTIME_ROOT", limits.root()), ("LOG_LEVEL", "debug")]);
    let http = server.address("HTTP");
    let body = r#"{"domain":"shop","descriptors":[{"entries":[{"key":"free","value":"x"}]}]}"#;
    // More than a pipe holds.
    for _ in 0..2_000 {
        assert_eq!(post(http, "/json", body).status, 200);
    }
    assert_eq!(get(http, "/healthcheck").status, 200);
    server.signal("TERM");
    await_that("it ends", || server.child.try_wait().unwrap().is_some());
}

#[test]
fn a_configuration_that_is_deleted_is_warned_of() {
    let limits = Limits::new(crate::support::LIMITS);
    let server = Process::start(&[("RUNTIME_ROOT", limits.root())]);
    std::fs::remove_file(limits.folder().join("limits.yaml")).unwrap();
    let debug = server.address("debug");
    await_that("it is gone", || get(debug, "/rlconfig").body.is_empty());
    server.signal("TERM");
    let (_, log) = server.end();
    assert!(
        log.contains("WARN") && log.contains("it has no domain, so nothing is limited"),
        "{log}"
    );
}
