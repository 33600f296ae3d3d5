//! Which Redis the counters and the workflows use, and how.

use super::parse;

/// Calls that had nine seconds left failed after one, because the engine took a paused Redis for a dead one.
#[test]
fn a_silent_redis_is_waited_for_as_long_as_calls_wait() {
    let check = |pairs: &[(&str, &str)], silence: u64, stall: u64| {
        let url = [("REDIS_URL", "127.0.0.1:1")];
        let config = parse(&[&url[..], pairs].concat())
            .unwrap()
            .redis
            .unwrap()
            .main
            .config;
        let seconds = (
            config.silence_timeout.as_secs(),
            config.stall_timeout.as_secs(),
        );
        assert_eq!(seconds, (silence, stall), "{pairs:?}");
    };
    check(&[], 1, 5);
    check(&[("TIDEGATE_CALL_TIMEOUT", "200ms")], 1, 5);
    check(&[("TIDEGATE_CALL_TIMEOUT", "10s")], 10, 10);
    check(
        &[("TIDEGATE_CALL_TIMEOUT", "10s"), ("REDIS_TIMEOUT", "3s")],
        3,
        5,
    );
}

/// A pause of two seconds failed the calls of workflows, which wait for ten.
#[test]
fn a_silent_redis_of_workflows_is_waited_for_as_long_as_their_calls_wait() {
    let check = |pairs: &[(&str, &str)], silence: u64, stall: u64| {
        let config = parse(pairs)
            .unwrap()
            .workflows
            .unwrap()
            .redis
            .unwrap()
            .config;
        let seconds = (
            config.silence_timeout.as_secs(),
            config.stall_timeout.as_secs(),
        );
        assert_eq!(seconds, (silence, stall), "{pairs:?}");
    };
    let counters = ("REDIS_URL", "127.0.0.1:1");
    check(&[counters], 10, 10);
    check(
        &[
            counters,
            ("REDIS_TIMEOUT", "3s"),
            ("TIDEGATE_CALL_TIMEOUT", "20s"),
        ],
        3,
        5,
    );
    check(&[counters, ("REDIS_TIMEOUT", "200ms")], 1, 5);
    let own = ("TIDEGATE_STORE_URL", "127.0.0.1:2");
    check(&[counters, ("REDIS_TIMEOUT", "3s"), own], 10, 10);
    check(&[own, ("TIDEGATE_STORE_TIMEOUT", "30s")], 30, 30);
}

#[test]
fn every_redis_may_have_a_server_name_and_an_address_map() {
    let pairs = [
        ("REDIS_URL", "rediss://a:1"),
        ("REDIS_PERSECOND", "true"),
        ("REDIS_PERSECOND_URL", "b:1"),
        ("TIDEGATE_STORE_URL", "rediss://c:1"),
        ("TIDEGATE_REDIS_TLS_SERVER_NAME", "redis.example"),
        (
            "TIDEGATE_REDIS_ADDRESS_MAP",
            "10.0.0.1=redis-0.example, 10.0.0.2=redis-1.example",
        ),
        ("TIDEGATE_STORE_TLS_SERVER_NAME", "store.example"),
        ("TIDEGATE_STORE_ADDRESS_MAP", "10.0.0.3:1=store.example:2"),
    ];
    let settings = parse(&pairs).unwrap();
    let (counters, workflows) = (
        settings.redis.unwrap(),
        settings.workflows.unwrap().redis.unwrap(),
    );
    assert!(counters.main.config.address_map.is_some() && workflows.config.address_map.is_some());
    assert!(counters.per_second.unwrap().config.address_map.is_some());
    for name in [
        "TIDEGATE_STORE_TLS_SERVER_NAME",
        "TIDEGATE_STORE_ADDRESS_MAP",
    ] {
        let error = parse(&[("REDIS_URL", "a:1"), (name, "a=b")]).unwrap_err();
        assert!(
            error.contains(name) && error.contains("it belongs to the Redis of TIDEGATE_STORE_URL"),
            "{error}"
        );
    }
}

/// Where workflows are, and which setting has the password there.
fn place(pairs: &[(&str, &str)]) -> Result<Option<[String; 2]>, String> {
    let workflows = parse(pairs)?.workflows.unwrap();
    assert_eq!(workflows.prefix, "tg:");
    Ok(workflows
        .redis
        .map(|redis| [redis.shown, redis.origin.auth]))
}

#[track_caller]
fn check_place(pairs: &[(&str, &str)], shown: &str, auth: &str) {
    assert_eq!(place(pairs).unwrap().unwrap(), [shown, auth]);
}

#[test]
fn workflows_are_in_the_redis_of_the_counters_unless_they_have_their_own() {
    assert_eq!(place(&[]), Ok(None));
    let counters = ("REDIS_URL", "a:1");
    check_place(&[counters], "a:1", "REDIS_AUTH, which is not set");
    assert_eq!(place(&[counters, ("TIDEGATE_STORE_URL", "file")]), Ok(None));
    let own = [
        ("TIDEGATE_STORE_URL", "m,s:1"),
        ("TIDEGATE_STORE_TYPE", "sentinel"),
        ("TIDEGATE_STORE_AUTH", "u:p"),
    ];
    check_place(&own, "m by sentinels s:1", "TIDEGATE_STORE_AUTH");
    let comma = [("REDIS_URL", "redis://u:p,w@a:1")];
    check_place(&comma, "a:1", "the user and password in REDIS_URL");
    // Not that of the counters.
    let both = [counters, ("REDIS_AUTH", "p"), ("TIDEGATE_STORE_URL", "b:1")];
    check_place(&both, "b:1", "TIDEGATE_STORE_AUTH, which is not set");
}

/// Settings of the store of workflows, and what is told of them.
const MISTAKES: [(&[(&str, &str)], &str); 9] = [
    (
        &[("TIDEGATE_STORE_URL", "")],
        "TIDEGATE_STORE_URL='': it is set but empty",
    ),
    (
        &[("TIDEGATE_STORE_URL", "u:p@b")],
        "TIDEGATE_STORE_URL='*****@b': expected host:port",
    ),
    (
        &[("TIDEGATE_STORE_URL", "sqlite")],
        "Unix socket; or file, for a file in TIDEGATE_DATA_DIR",
    ),
    (
        &[("TIDEGATE_STORE_URL", "a:1,b:2")],
        "several servers, which need TIDEGATE_STORE_TYPE=cluster, or",
    ),
    (
        &[("REDIS_URL", "a,b:2")],
        "REDIS_URL='a,b:2': it names several servers, which need REDIS_TYPE=cluster, or",
    ),
    (
        &[("REDIS_URL", "a:1"), ("TIDEGATE_STORE_AUTH", "p")],
        "TIDEGATE_STORE_AUTH: it belongs to the Redis of",
    ),
    (
        &[
            ("TIDEGATE_STORE_URL", "file"),
            ("TIDEGATE_STORE_TLS", "true"),
        ],
        "TIDEGATE_STORE_TLS: it belongs",
    ),
    (
        &[("TIDEGATE_STORE_PREFIX", "{a}")],
        "TIDEGATE_STORE_PREFIX='{a}': expected 1 to 64",
    ),
    (
        &[("TIDEGATE_STORE_PREFIX", "")],
        "TIDEGATE_STORE_PREFIX='': expected 1 to 64",
    ),
];

#[test]
fn a_wrong_place_of_workflows_is_refused_by_name() {
    for (pairs, expected) in MISTAKES {
        let error = place(pairs).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}
