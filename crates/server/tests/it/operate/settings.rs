//! Settings, as those who run the server see them.

mod command;
mod memcached;
mod redis_lists;
mod redis_servers;
mod xds;

use std::collections::HashMap;
use std::time::Duration;

use tidegate::settings::{Program, Settings, markdown};

fn parse(pairs: &[(&str, &str)]) -> Result<Settings, String> {
    let given = pairs
        .iter()
        .map(|&(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    Settings::parse(&given).map_err(|error| error.to_string())
}

/// Also in the place of the reference, which has no delay: what it loses there, nobody wants to lose here.
#[test]
fn the_delay_of_a_drain_is_the_same_under_both_names() {
    for program in [Program::Tidegate, Program::Ratelimit] {
        let drain = Settings::parse_as(program, HashMap::new()).unwrap().drain;
        assert_eq!(
            (drain.delay, drain.timeout),
            (Duration::from_secs(10), Duration::from_secs(10)),
            "{program:?}"
        );
    }
}

#[test]
fn an_empty_environment_is_a_fresh_start() {
    let settings = parse(&[]).unwrap();
    assert!(
        settings.redis.is_none()
            && settings.metrics.prometheus.is_none()
            && settings.warnings.is_empty()
    );
    assert_eq!((settings.http.port, settings.debug.port), (8080, 6070));
    assert_eq!(settings.limiter, tidegate_ratelimit::Options::default());
}

#[test]
fn every_mistake_is_reported_at_once() {
    let error = parse(&[
        ("PORT", "eighty"),
        ("GRPC_PORT", "70000"),
        ("SHADOW_MODE", ""),
        ("TIDEGATE_CALL_TIMEOUT", "10"),
        ("TIDEGATE_CORE", "2"),
        ("NEAR_LIMIT_RATIO", "1.5"),
        ("LOG_LEVEL", "loud"),
        ("EXTRA_TAGS", "a"),
        ("REDIS_URL", "redis://ada:hunter2@host:x"),
        ("REDIS_AUTH", "hunter2"),
        ("REDIS_TYPE", "ring"),
    ])
    .unwrap_err();
    assert_eq!(
        error,
        "\
10 settings are wrong
  TIDEGATE_CALL_TIMEOUT='10': expected a time span such as 150ms, 10s or 1h30m
  PORT='eighty': expected a whole number (port)
  GRPC_PORT='70000': expected a number from 0 to 65535
  LOG_LEVEL='loud': expected one of panic, fatal, error, warn, warning, info, debug, trace
  EXTRA_TAGS='a': expected pairs such as name:value,other:value
  NEAR_LIMIT_RATIO='1.5': expected a number from 0 to 1
  SHADOW_MODE='': expected true or false
  REDIS_URL='redis://*****@*****': expected host:port after the //; write / ? # % and other signs of a user or password as % and two digits, such as %2F for /
  REDIS_TYPE='ring': expected one of single, cluster, sentinel
  TIDEGATE_CORE: there is no such setting; did you mean TIDEGATE_CORES?"
    );
}

#[test]
fn what_kubernetes_sets_for_a_service_of_our_name_is_no_mistake() {
    let settings = parse(&[
        ("TIDEGATE_SERVICE_HOST", "10.0.0.1"),
        ("TIDEGATE_PORT", "tcp://10.0.0.1:8081"),
    ])
    .unwrap();
    let [warning] = &settings.warnings[..] else {
        panic!("{:?}", settings.warnings)
    };
    let told = "TIDEGATE_PORT and 1 more had no effect: Kubernetes sets such variables for a Service named tidegate;";
    assert!(warning.starts_with(told), "{warning}");
    let redis = parse(&[("TIDEGATE_REDIS_MASTER_PORT_6379_TCP", "tcp://10.0.0.2:6379")]).unwrap();
    assert!(
        redis.warnings[0].contains("a Service named tidegate-redis-master;"),
        "{:?}",
        redis.warnings
    );
    assert!(
        parse(&[("TIDEGATE_PORT", "8081")]).is_err(),
        "a mistake is still one"
    );
}

/// `TIDEGATE_CORES` was the guess for `TIDEGATE_PORT`.
#[test]
fn a_name_of_ours_that_is_far_from_all_settings_gets_no_guess() {
    for (name, told) in [
        ("TIDEGATE_X", "there is no such setting"),
        (
            "TIDEGATE_PORT",
            "there is no such setting; did you mean PORT?",
        ),
        (
            "TIDEGATE_REDIS_URL",
            "there is no such setting; did you mean REDIS_URL?",
        ),
        (
            "TIDEGATE_METRIC_KEYS",
            "there is no such setting; did you mean TIDEGATE_MAX_METRIC_KEYS?",
        ),
    ] {
        let error = parse(&[(name, "1")]).unwrap_err();
        assert!(error.ends_with(&format!("{name}: {told}")), "{error}");
    }
}

#[test]
fn bounds_in_bytes_are_told_with_their_units() {
    let error = parse(&[
        ("TIDEGATE_COUNTER_MEMORY", "512k"),
        ("TIDEGATE_MAX_BODY", "2G"),
    ])
    .unwrap_err();
    assert!(
        error.contains("TIDEGATE_COUNTER_MEMORY='512k': expected 1M or more"),
        "{error}"
    );
    assert!(
        error.contains("TIDEGATE_MAX_BODY='2G': expected a number from 1k to 1G"),
        "{error}"
    );
}

#[test]
fn names_that_would_break_the_page_of_metrics_are_refused() {
    for path in ["/:x", "/*x", "/a/:x", "/{x}", "/a b", "/a?b", "metrics", ""] {
        let error = parse(&[("USE_PROMETHEUS", "true"), ("PROMETHEUS_PATH", path)]).unwrap_err();
        assert!(
            error.contains("PROMETHEUS_PATH") && error.contains("expected a path"),
            "{path}: {error}"
        );
    }
    let settings = parse(&[
        ("USE_PROMETHEUS", "true"),
        ("PROMETHEUS_PATH", "/a:b/metrics.txt"),
    ])
    .unwrap();
    assert_eq!(settings.metrics.prometheus.unwrap().1, "/a:b/metrics.txt");
    assert!(
        parse(&[("EXTRA_TAGS", ":v")])
            .unwrap_err()
            .contains("EXTRA_TAGS=':v': a label needs a name")
    );
}

#[test]
fn what_this_version_lacks_is_refused_or_warned_of() {
    for (name, value) in [
        ("REDIS_TYPE", "sentinel"),
        ("REDIS_TYPE", "CLUSTER"),
        ("REDIS_POOL_ON_EMPTY_BEHAVIOR", "create"),
        ("REDIS_PERSECOND", "true"),
        ("REDIS_URL", ""),
    ] {
        let error = parse(&[(name, value)]).unwrap_err();
        assert!(error.starts_with("1 setting is wrong\n"), "{error}");
        assert!(error.contains(name), "{error}");
    }
    for (name, value) in [
        ("USE_STATSD", "false"),
        ("BACKEND_TYPE", ""),
        ("REDIS_TYPE", "SINGLE"),
    ] {
        assert!(
            parse(&[(name, value)]).unwrap().warnings.is_empty(),
            "{name}"
        );
    }
}

/// Settings without effect, a value that is warned of, one that is as if it were not set, and what is told.
const IGNORED: &str = "\
REDIS_PIPELINE_LIMIT 8 0 it is deprecated
REDIS_PERSECOND_PIPELINE_LIMIT 8 0 it is deprecated
REDIS_PIPELINE_WINDOW 150us 0 concurrent calls share writes
REDIS_PERSECOND_PIPELINE_WINDOW 1ms 0s concurrent calls share writes
MEMCACHE_MAX_IDLE_CONNS 10 2 the calls of a core share one connection";

#[test]
fn what_has_no_effect_any_more_is_named() {
    let page = markdown();
    for case in IGNORED.lines() {
        let words: Vec<&str> = case.splitn(4, ' ').collect();
        let [name, value, default, told] = words[..] else {
            panic!("{case}")
        };
        let warnings = parse(&[(name, value)]).unwrap().warnings;
        let expected = format!("{name}={value} has no effect: {told}");
        assert!(
            warnings.len() == 1 && warnings[0].starts_with(&expected),
            "{warnings:?}"
        );
        let unset = parse(&[(name, default)]).unwrap();
        assert!(unset.warnings.is_empty(), "as if {name} were not set");
        assert!(parse(&[(name, "")]).is_err(), "{name} is not a text");
        let start = format!("| `{name}` |");
        let row = page.lines().find(|line| line.starts_with(&start)).unwrap();
        assert!(row.contains("| ignored |"), "{row}");
        assert!(row.to_lowercase().contains("has no effect"), "{row}");
        let deprecated = told.contains("deprecated");
        assert_eq!(row.contains("Deprecated"), deprecated, "{row}");
    }
}

#[test]
fn pools_that_are_not_there_may_only_be_set_to_what_is_done_anyway() {
    for (name, value) in [
        ("REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM", "0"),
        ("REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR", "wait"),
    ] {
        let settings = parse(&[(name, value)]).unwrap();
        assert!(settings.warnings.is_empty(), "{name}");
    }
    for name in [
        "REDIS_POOL_ON_EMPTY_BEHAVIOR",
        "REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR",
    ] {
        for value in ["CREATE", "error"] {
            let error = parse(&[(name, value)]).unwrap_err();
            let expected = format!("{name}='{value}': calls share connections");
            assert!(error.contains(&expected), "{error}");
        }
    }
}

/// envoyproxy/ratelimit pull request 1191.
#[test]
fn connections_to_a_replica_are_closed_whatever_the_setting_says() {
    let name = "REDIS_CLOSE_CONNECTION_ON_READONLY_ERROR";
    for value in ["true", "false", "1", "F"] {
        assert!(
            parse(&[(name, value)]).unwrap().warnings.is_empty(),
            "{value}"
        );
    }
    assert!(parse(&[(name, "yes")]).unwrap_err().contains(name));
    assert!(markdown().contains(&format!("| `{name}` | boolean | `false` | yes |")));
}

/// A shadow of a server with a socket was told to use a port, and took the socket.
#[test]
fn a_socket_takes_the_place_of_the_grpc_port() {
    let warnings = parse(&[("GRPC_UDS", "/run/a.sock"), ("GRPC_PORT", "18081")])
        .unwrap()
        .warnings;
    let expected = "GRPC_PORT has no effect: GRPC_UDS=/run/a.sock takes the place of the port";
    assert!(
        warnings.len() == 1 && warnings[0].starts_with(expected),
        "{warnings:?}"
    );
    assert!(
        parse(&[("GRPC_UDS", ""), ("GRPC_PORT", "18081")])
            .unwrap()
            .warnings
            .is_empty()
    );
    assert!(
        parse(&[("GRPC_UDS", "/run/a.sock")])
            .unwrap()
            .warnings
            .is_empty()
    );
}

/// envoyproxy/ratelimit starts with these, and does something else than was meant.
#[test]
fn values_that_make_no_sense_are_mistakes() {
    for (name, value, told) in [
        (
            "EXPIRATION_JITTER_MAX_SECONDS",
            "-5",
            "expected a number from 0",
        ),
        ("NEAR_LIMIT_RATIO", "1.5", "expected a number from 0 to 1"),
        ("REDIS_TIMEOUT", "-1s", "expected a time span"),
        ("LOCAL_CACHE_SIZE_IN_BYTES", "-1", "expected 0 or more"),
        (
            "LIMIT_LIMIT_HEADER",
            "",
            "expected the name of an HTTP header",
        ),
        (
            "LIMIT_RESET_HEADER",
            "a b",
            "expected the name of an HTTP header",
        ),
    ] {
        let error = parse(&[(name, value)]).unwrap_err();
        assert!(
            error.contains(&format!("{name}='{value}': {told}")),
            "{error}"
        );
    }
    for (name, value) in [
        ("BACKEND_TYPE", "REDIS"),
        ("CONFIG_TYPE", "file"),
        ("REDIS_POOL_ON_EMPTY_BEHAVIOR", "wait"),
    ] {
        assert!(parse(&[(name, value)]).is_ok(), "{name} in any letter case");
    }
}

#[test]
fn what_only_its_readme_knows_is_named() {
    for name in [
        "REDIS_POOL_ON_EMPTY_WAIT_DURATION",
        "REDIS_PERSECOND_POOL_ON_EMPTY_WAIT_DURATION",
    ] {
        let warnings = parse(&[(name, "1s")]).unwrap().warnings;
        assert!(
            warnings.len() == 1 && warnings[0].starts_with(&format!("{name} has no effect")),
            "{warnings:?}"
        );
    }
}

#[test]
fn the_environments_of_known_deployments_are_understood() {
    // docker-compose of the reference, and the sample of Istio.
    let settings = parse(&[
        ("USE_STATSD", "false"),
        ("LOG_LEVEL", "debug"),
        ("REDIS_SOCKET_TYPE", "tcp"),
        ("REDIS_URL", "redis:6379"),
        ("RUNTIME_ROOT", "/data"),
        ("RUNTIME_SUBDIRECTORY", "ratelimit"),
        ("RUNTIME_WATCH_ROOT", "false"),
        ("RUNTIME_IGNOREDOTFILES", "true"),
        ("HOST", "::"),
        ("GRPC_HOST", "::"),
    ])
    .unwrap();
    assert_eq!(settings.redis.unwrap().main.shown, "redis:6379");
    assert!(settings.http.host.is_ipv6());
}
