//! Settings, as those who run the server see them.

mod redis_servers;

use std::collections::HashMap;
use std::process::Command;
use std::time::Duration;

use tidegate::settings::{Program, Settings, markdown};
use tidegate_pipeline::{Parallelism, Servers};

use crate::support::{await_that, get, repository};
use crate::workflows::{Flows, redis, workflow};

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
fn memcached_needs_servers_from_one_place() {
    let memcache = |more: &[(&str, &str)]| parse(&[&[("BACKEND_TYPE", "memcache")], more].concat());
    let list = ("MEMCACHE_HOST_PORT", "a:1,b:2");
    for (more, told) in [
        (
            &[][..],
            "BACKEND_TYPE='memcache': it needs servers: set MEMCACHE_HOST_PORT",
        ),
        (
            &[list, ("MEMCACHE_SRV", "_m._tcp.x")],
            "Both MEMCACHE_HOST_PORT and MEMCACHE_SRV are set",
        ),
        (
            &[("MEMCACHE_SRV", "cache.example")],
            "could not parse cache.example to SRV parts",
        ),
        (
            &[("MEMCACHE_SRV", "_m._tcp")],
            "could not parse _m._tcp to SRV parts",
        ),
        (
            &[("MEMCACHE_HOST_PORT", "a:1,b")],
            "MEMCACHE_HOST_PORT='a:1,b': expected host:port",
        ),
        (
            &[list, ("MEMCACHE_SRV_REFRESH", "")],
            "MEMCACHE_SRV_REFRESH='': expected a time span",
        ),
        (
            &[list, ("TIDEGATE_DNS_SERVERS", "10.0.0.1")],
            "TIDEGATE_DNS_SERVERS='10.0.0.1': expected address:port",
        ),
        (
            &[
                list,
                ("MEMCACHE_TLS", "true"),
                ("MEMCACHE_TLS_CACERT", "/none"),
            ],
            "MEMCACHE_TLS_CACERT='/none': cannot read",
        ),
    ] {
        let error = memcache(more).unwrap_err();
        assert!(
            error.starts_with("1 setting is wrong\n") && error.contains(told),
            "{error}"
        );
    }
    let settings = memcache(&[list, ("REDIS_URL", "redis:6379")]).unwrap();
    assert_eq!(
        settings.memcache.unwrap().to_string(),
        "memcached at a:1,b:2"
    );
    assert!(
        settings.redis.is_none() && settings.workflows.unwrap().redis.is_some(),
        "workflows are in Redis"
    );
    assert!(
        parse(&[("BACKEND_TYPE", ""), list])
            .unwrap()
            .memcache
            .is_none()
    );
    assert!(
        parse(&[("BACKEND_TYPE", "etcd")])
            .unwrap_err()
            .contains("expected one of redis, nothing, memcache")
    );
}

#[test]
fn what_memcached_cannot_do_is_ignored_with_a_warning() {
    let names = ["STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", "REDIS_PERSECOND"];
    for name in names {
        let settings = parse(&[
            ("BACKEND_TYPE", "memcache"),
            ("MEMCACHE_HOST_PORT", "a:1"),
            (name, "true"),
        ])
        .unwrap();
        assert!(
            settings.warnings[0].starts_with(&format!("{name}=true has no effect")),
            "{:?}",
            settings.warnings
        );
        assert_eq!(
            settings.limiter.over_limit_keys,
            tidegate_ratelimit::OverLimitKeys::Increment
        );
    }
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

#[test]
fn what_has_no_effect_any_more_is_named() {
    let page = markdown();
    for (name, value, default, told) in [
        ("REDIS_PIPELINE_LIMIT", "8", "0", "it is deprecated"),
        (
            "REDIS_PERSECOND_PIPELINE_LIMIT",
            "8",
            "0",
            "it is deprecated",
        ),
        (
            "REDIS_PIPELINE_WINDOW",
            "150us",
            "0",
            "concurrent calls share writes",
        ),
        (
            "REDIS_PERSECOND_PIPELINE_WINDOW",
            "1ms",
            "0s",
            "concurrent calls share writes",
        ),
        (
            "MEMCACHE_MAX_IDLE_CONNS",
            "10",
            "2",
            "the calls of a core share one connection",
        ),
    ] {
        let warnings = parse(&[(name, value)]).unwrap().warnings;
        let expected = format!("{name}={value} has no effect: {told}");
        assert!(
            warnings.len() == 1 && warnings[0].starts_with(&expected),
            "{warnings:?}"
        );
        assert!(
            parse(&[(name, default)]).unwrap().warnings.is_empty(),
            "as if {name} were not set"
        );
        assert!(parse(&[(name, "")]).is_err(), "{name} is not a text");
        let row = page
            .lines()
            .find(|line| line.starts_with(&format!("| `{name}` |")))
            .unwrap();
        assert!(
            row.contains("| ignored |") && row.to_lowercase().contains("has no effect"),
            "{row}"
        );
        assert_eq!(
            row.contains("Deprecated"),
            told.contains("deprecated"),
            "{row}"
        );
    }
    for (name, value) in [
        ("REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM", "0"),
        ("REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR", "wait"),
    ] {
        assert!(
            parse(&[(name, value)]).unwrap().warnings.is_empty(),
            "{name}"
        );
    }
    for name in [
        "REDIS_POOL_ON_EMPTY_BEHAVIOR",
        "REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR",
    ] {
        for value in ["CREATE", "error"] {
            let error = parse(&[(name, value)]).unwrap_err();
            assert!(
                error.contains(&format!("{name}='{value}': calls share connections")),
                "{error}"
            );
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

#[test]
fn mistakes_about_a_management_server_are_reported_and_its_headers_are_secret() {
    let xds = |more: &[(&str, &str)]| parse(&[&[("CONFIG_TYPE", "GRPC_XDS_SOTW")], more].concat());
    let settings = xds(&[
        ("XDS_CLIENT_BACKOFF_JITTER", "false"),
        ("RUNTIME_ROOT", "/nowhere"),
    ])
    .unwrap()
    .xds
    .unwrap();
    assert_eq!(
        (&*settings.node_id, &*settings.peer.host, settings.peer.port),
        ("default", "localhost", 18000)
    );
    assert_eq!(
        (settings.max_message, settings.retries.variation),
        (4 << 20, 0.0)
    );
    let error = xds(&[
        ("CONFIG_GRPC_XDS_SERVER_URL", "http://a:1"),
        ("CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", "0"),
        ("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", "a b:hunter2"),
        ("CONFIG_GRPC_XDS_SERVER_USE_TLS", "true"),
        ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", "/nowhere.pem"),
        ("CONFIG_GRPC_XDS_SERVER_TLS_SAN", "a b"),
        ("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", "0"),
        ("XDS_CLIENT_BACKOFF_RANDOM_FACTOR", "2"),
        ("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", "-1"),
    ]);
    assert_eq!(
        error.unwrap_err(),
        "\
8 settings are wrong
  CONFIG_GRPC_XDS_SERVER_URL='http://a:1': expected host:port
  CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL='0': expected more than 0
  CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS='*****': pair 1 is no header of HTTP/2
  CONFIG_GRPC_XDS_SERVER_TLS_CACERT='/nowhere.pem': cannot read the file: No such file or directory (os error 2)
  CONFIG_GRPC_XDS_SERVER_TLS_SAN='a b': expected a DNS name or an IP address
  XDS_CLIENT_BACKOFF_INITIAL_INTERVAL='0': expected more than 0
  XDS_CLIENT_BACKOFF_RANDOM_FACTOR='2': expected a number from 0 to 1
  XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES='-1': expected a number from 0 to 2147483647"
    );
    assert!(
        parse(&[("CONFIG_GRPC_XDS_SERVER_URL", "a")])
            .unwrap()
            .xds
            .is_none(),
        "files need no server"
    );
    for headers in [
        "authorization=Bearer hunter2",
        "hunter2",
        "a:b,hunter2",
        "a:b:hunter2",
        "a:b,hunter2:c d:e",
    ] {
        let error = xds(&[("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", headers)]).unwrap_err();
        assert!(
            error.contains("expected pairs such as") && !error.contains("hunter2"),
            "{error}"
        );
    }
    for address in ["hunter2@a:1", "ada:hunter2@a:1", "http://ada:hunter2@a:1"] {
        let error = xds(&[("CONFIG_GRPC_XDS_SERVER_URL", address)]).unwrap_err();
        assert!(
            error.contains("*****@a:1': expected host:port") && !error.contains("hunter2"),
            "{error}"
        );
    }
}

#[test]
fn clusters_and_sentinels_are_lists() {
    let main = |extra: &[(&str, &str)]| parse(extra).map(|settings| settings.redis.unwrap().main);
    let cluster = main(&[
        ("REDIS_TYPE", "CLUSTER"),
        ("REDIS_URL", "redis://ada:p@a:1, b:2,[::1]:3"),
        ("REDIS_CLUSTER_PIPELINE_PARALLELISM", "8"),
        ("REDIS_TLS", "true"),
    ])
    .unwrap();
    assert_eq!(cluster.shown, "cluster a:1,b:2,[::1]:3");
    let Servers::Cluster(addresses) = &cluster.config.servers else {
        panic!("{:?}", cluster.config.servers)
    };
    assert_eq!(addresses.len(), 3);
    assert_eq!(cluster.config.parallelism, Parallelism::new(8, 10).unwrap());
    assert_eq!(cluster.config.credentials.unwrap().password, "p");
    assert!(cluster.config.tls.is_some());

    let sentinel = [
        ("REDIS_TYPE", "sentinel"),
        ("REDIS_URL", "mymaster,s1:26379,s2:26379"),
        ("REDIS_SENTINEL_AUTH", "w"),
    ];
    let sentinel = main(&sentinel).unwrap();
    assert_eq!(sentinel.shown, "mymaster by sentinels s1:26379,s2:26379");
    let Servers::Sentinel { credentials, .. } = sentinel.config.servers else {
        panic!("not sentinels")
    };
    assert_eq!(credentials.unwrap().password, "w");

    for (auth, of_sentinels) in [(None, "of sentinels"), (Some("w"), "w")] {
        let mut pairs = vec![("REDIS_TYPE", "sentinel"), ("REDIS_AUTH", "of data")];
        pairs.push((
            "REDIS_URL",
            "mymaster,s1:26379,redis://:of%20sentinels@s2:26379",
        ));
        pairs.extend(auth.map(|auth| ("REDIS_SENTINEL_AUTH", auth)));
        let config = main(&pairs).unwrap().config;
        assert_eq!(config.credentials.unwrap().password, "of data");
        let Servers::Sentinel { credentials, .. } = config.servers else {
            panic!("not sentinels")
        };
        assert_eq!(credentials.unwrap().password, of_sentinels);
    }
    let sentinel = [
        ("REDIS_TYPE", "sentinel"),
        ("REDIS_URL", "mymaster,redis://:w@s1:26379"),
    ];
    assert_eq!(
        main(&sentinel).unwrap().config.credentials,
        None,
        "data servers have passwords of their own"
    );

    for (url, kind, expected) in [
        (
            "mymaster",
            "sentinel",
            "Expected master name and a list of urls for the sentinels",
        ),
        (
            ",s1:1",
            "sentinel",
            "Expected master name and a list of urls for the sentinels",
        ),
        ("a:1,b", "cluster", "expected host:port"),
        ("/run/redis.sock", "cluster", "it is a path"),
    ] {
        let error = main(&[("REDIS_TYPE", kind), ("REDIS_URL", url)]).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
    for (name, value, expected) in [
        (
            "REDIS_CLUSTER_PIPELINE_PARALLELISM",
            "-1",
            "redis cluster pipeline parallelism must be >= 0",
        ),
        ("REDIS_TLS_CACERT", "/nowhere.pem", "cannot read the file"),
        (
            "TIDEGATE_REDIS_AUTH_FILE",
            "/nowhere",
            "cannot read /nowhere",
        ),
        (
            "TIDEGATE_REDIS_TLS_SERVER_NAME",
            "redis.example:6379",
            "expected a host name or an address, without a port",
        ),
        (
            "TIDEGATE_REDIS_ADDRESS_MAP",
            "10.0.0.1",
            "10.0.0.1: expected announced=dialled",
        ),
    ] {
        let error =
            main(&[("REDIS_URL", "a:1"), ("REDIS_TLS", "true"), (name, value)]).unwrap_err();
        assert!(error.contains(name) && error.contains(expected), "{error}");
    }
}

#[test]
fn docs_settings_md_is_not_stale() {
    let page = std::fs::read_to_string(repository().join("docs/settings.md")).unwrap();
    assert!(
        page == markdown(),
        "docs/settings.md is stale: run `make gen`"
    );
}

#[test]
fn the_binary_ends_with_64_and_tells_no_secret() {
    let tidegate = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command
            .env_clear()
            .args(arguments)
            .env("REDIS_AUTH", "hunter2")
            .env("REDIS_URL", "redis://u:hunter2@h:1:2");
        let output = command.output().unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(!text.contains("hunter2"), "{text}");
        (output.status.code(), text)
    };
    let (code, text) = tidegate(&[]);
    assert_eq!(code, Some(64), "{text}");
    assert!(text.contains("REDIS_URL='redis://*****@*****'"), "{text}");
    let (code, text) = tidegate(&["settings"]);
    assert_eq!(code, Some(64), "{text}");
    assert!(text.contains("\nREDIS_AUTH=*****\n"), "{text}");
    assert!(
        text.contains(
            "\n  REDIS_URL='redis://*****@*****': expected host:port after the //; write"
        ),
        "{text}"
    );
    assert_eq!(tidegate(&["settings", "--markdown"]).1, markdown());
    assert_eq!(
        tidegate(&["--version"]).1,
        format!("tidegate {}\n", tidegate::VERSION)
    );
}

/// Two builds of one version could not be told apart.
#[test]
fn a_build_of_the_repository_names_its_revision() {
    let revision = tidegate::VERSION.strip_prefix(concat!(env!("CARGO_PKG_VERSION"), "+"));
    let is_revision =
        |text: &str| text.len() >= 7 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    assert_eq!(
        revision.is_some_and(is_revision),
        repository().join(".git").exists(),
        "{}",
        tidegate::VERSION
    );
    assert!(revision.is_some() || tidegate::VERSION == env!("CARGO_PKG_VERSION"));
    let redis = redis();
    let flows = Flows::on(&redis);
    assert_eq!(flows.get("/v1/version")["version"], tidegate::VERSION);
    flows.create(workflow("w", "a"));
    await_that("the server is among those of its store", || {
        flows.get("/v1/status")["workflows"]["servers"][0]["version"] == tidegate::VERSION
    });
    let build = format!(
        "tidegate_build_info{{version=\"{}\"}} 1\n",
        tidegate::VERSION
    );
    assert!(get(flows.server.debug(), "/metrics").body.contains(&build));
}

/// Names that are not ours cannot be refused, so a misspelt one was ignored in silence.
#[test]
fn names_that_look_misspelt_are_warned_of() {
    let warnings = |pairs: &[(&str, &str)]| parse(pairs).unwrap().warnings;
    assert_eq!(
        warnings(&[
            ("REDIS_ULR", "a:1"),
            ("RUNTIME_SUBDIR", "limits"),
            ("REDIS_PORT_6379_TCP", "tcp://a:1"),
            ("HOME", "/")
        ]),
        [
            "REDIS_ULR is not a setting and has no effect; did you mean REDIS_URL?",
            "RUNTIME_SUBDIR is not a setting and has no effect; did you mean RUNTIME_SUBDIRECTORY?",
        ]
    );
    // The right name is there too: the other one is for another program.
    assert!(warnings(&[("REDIS_URI", "a:1"), ("REDIS_URL", "a:1")]).is_empty());
    // What is missing may be what was misspelt.
    let misspelt = [("REDIS_TYPE", "cluster"), ("REDIS_ULR", "a:1")];
    let error = parse(&misspelt).unwrap_err();
    assert!(
        error.ends_with("\n  REDIS_TYPE='cluster': set REDIS_URL to the addresses of its servers"),
        "{error}"
    );
    for arguments in [&[][..], &["settings"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        let output = command
            .env_clear()
            .args(arguments)
            .envs(misspelt)
            .output()
            .unwrap();
        let log = String::from_utf8(output.stderr).unwrap();
        let warning =
            "warning: REDIS_ULR is not a setting and has no effect; did you mean REDIS_URL?";
        assert!(
            log.lines().any(|line| line == warning),
            "a warning is not listed under the error:\n{log}"
        );
    }
}

#[test]
fn the_settings_command_warns_as_the_server_does() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    let output = command
        .env_clear()
        .arg("settings")
        .envs([("REDIS_ULR", "a:1"), ("TRACING_ENABLED", "true")])
        .output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(0));
    let log = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        log,
        "warning: REDIS_ULR is not a setting and has no effect; did you mean REDIS_URL?\n"
    );
}
