//! What reaches Redis, byte for byte, and what is told when it does not answer.

use std::time::{Duration, Instant};

use tidegate_pipeline::test_util::{RedisServer, valkey_program};
use tidegate_ratelimit::Code::Ok as Pass;
use tidegate_ratelimit::{
    Descriptor, Facts, Options, OverLimitKeys, RedisStore, Request, Store, Timestamp,
};

use crate::fixture::{
    NOW, check_at, client, descriptor, limiter_with, numbers, options, outline, refund, request,
    with_hits,
};

const LIMITS: &str = "
domain: test-domain
descriptors:
  - {key: second, rate_limit: {unit: second, requests_per_unit: 10}}
  - {key: minute, rate_limit: {unit: minute, requests_per_unit: 10}}
  - {key: hour, rate_limit: {unit: hour, requests_per_unit: 10}}
  - {key: files, value: files/*, share_threshold: true, rate_limit: {unit: day, requests_per_unit: 10}}
  - {key: free, rate_limit: {unlimited: true}}
";

/// The commands that one request sends.
async fn commands(options: Options, request: &Request) -> Vec<String> {
    let server = RedisServer::start().await;
    let limiter = limiter_with(
        Store::Redis(RedisStore::new(client(&server), None)),
        LIMITS,
        options,
    );
    let monitor = server.monitor();
    check_at(&limiter, NOW, request)
        .await
        .response
        .expect("an answer");
    let _ = server.raw("ECHO end-of-test");
    let commands = monitor.commands_until("end-of-test");
    // What a connection says when it opens is the engine's business.
    let ours = ["\"INCRBY\"", "\"EXPIRE\"", "\"GET\"", "\"EVAL\""];
    commands
        .into_iter()
        .filter(|command| ours.iter().any(|name| command.starts_with(name)))
        .collect()
}

async fn check(options: Options, descriptors: &[Descriptor], expected: &[&str]) {
    assert_eq!(commands(options, &request(descriptors)).await, expected);
}

#[tokio::test]
async fn a_charge_is_incrby_and_expire_in_the_order_of_the_request() {
    check(
        options(),
        &[
            with_hits("minute=x", 3),
            descriptor("none=x"),
            descriptor("free=x"),
            descriptor("second="),
            with_hits("hour=x y=z", 1),
            with_hits("files=files/a.pdf", 0),
            descriptor("hour=x"),
        ],
        &[
            r#""INCRBY" "test-domain_minute_x_999960" "3""#,
            r#""EXPIRE" "test-domain_minute_x_999960" "60""#,
            r#""INCRBY" "test-domain_second__999974" "1""#,
            r#""EXPIRE" "test-domain_second__999974" "1""#,
            r#""INCRBY" "test-domain_files_files/*_950400" "0""#,
            r#""EXPIRE" "test-domain_files_files/*_950400" "86400""#,
            r#""INCRBY" "test-domain_hour_x_997200" "1""#,
            r#""EXPIRE" "test-domain_hour_x_997200" "3600""#,
        ],
    )
    .await;
}

#[tokio::test]
async fn keys_carry_the_prefix_and_lifetimes_their_jitter() {
    let jittered = Options {
        key_prefix: "p:".into(),
        expiration_jitter: 300,
        ..options()
    };
    let mut lifetimes = Vec::new();
    for command in commands(jittered, &request(&vec![descriptor("second=x"); 20])).await {
        match command.strip_prefix(r#""EXPIRE" "p:test-domain_second_x_999974" ""#) {
            Some(seconds) => lifetimes.push(seconds.trim_end_matches('"').parse::<u32>().unwrap()),
            None => assert_eq!(command, r#""INCRBY" "p:test-domain_second_x_999974" "1""#),
        }
    }
    assert_eq!(lifetimes.len(), 20);
    assert!(
        lifetimes.iter().all(|seconds| (1..=300).contains(seconds)),
        "{lifetimes:?}"
    );
    assert!(
        lifetimes.iter().any(|seconds| *seconds != lifetimes[0]),
        "drawn for each key: {lifetimes:?}"
    );
}

#[tokio::test]
async fn stop_increment_reads_before_it_charges() {
    let stop = Options {
        over_limit_keys: OverLimitKeys::StopIncrement,
        ..options()
    };
    check(
        stop,
        &[with_hits("minute=x", 11), with_hits("hour=x", 10)],
        &[
            r#""GET" "test-domain_minute_x_999960""#,
            r#""GET" "test-domain_hour_x_997200""#,
            r#""INCRBY" "test-domain_minute_x_999960" "11""#,
            r#""EXPIRE" "test-domain_minute_x_999960" "60""#,
            r#""INCRBY" "test-domain_hour_x_997200" "0""#,
            r#""EXPIRE" "test-domain_hour_x_997200" "3600""#,
        ],
    )
    .await;
}

#[tokio::test]
async fn a_refund_is_one_command() {
    let sent = commands(options(), &request(&[refund("minute=x", 2)])).await;
    // What the script runs is seen too.
    assert_eq!(
        sent.iter()
            .filter(|command| command.starts_with("\"EVAL"))
            .count(),
        1,
        "{sent:?}"
    );
    assert!(
        sent[0].ends_with(r#" "1" "test-domain_minute_x_999960" "2" "60""#),
        "{sent:?}"
    );
}

#[tokio::test]
async fn limits_per_second_have_a_redis_of_their_own() {
    let (main, per_second) = (RedisServer::start().await, RedisServer::start().await);
    let store = RedisStore::new(client(&main), Some(client(&per_second)));
    let stop = Options {
        over_limit_keys: OverLimitKeys::StopIncrement,
        ..options()
    };
    for options in [options(), stop] {
        let limiter = limiter_with(Store::Redis(store.clone()), LIMITS, options);
        let mixed = [
            with_hits("second=x", 2),
            with_hits("minute=x", 3),
            refund("second=x", 1),
        ];
        let first = check_at(&limiter, NOW, &request(&mixed)).await;
        assert!(first.response.is_ok());
    }
    assert_eq!(
        main.raw("KEYS *"),
        "*1\r\n$27\r\ntest-domain_minute_x_999960\r\n"
    );
    assert_eq!(main.raw("GET test-domain_minute_x_999960"), "$1\r\n6\r\n");
    assert_eq!(
        per_second.raw("GET test-domain_second_x_999974"),
        "$1\r\n2\r\n"
    );
}

#[tokio::test]
async fn a_request_without_counters_does_not_need_redis() {
    let mut server = RedisServer::start().await;
    server.kill();
    let limiter = limiter_with(
        Store::Redis(RedisStore::new(client(&server), None)),
        LIMITS,
        options(),
    );
    let checked = check_at(
        &limiter,
        NOW,
        &request(&[descriptor("none=x"), descriptor("free=x")]),
    )
    .await;
    assert_eq!(
        outline(&checked.response.unwrap()),
        [(Pass, 0), (Pass, u32::MAX)]
    );
}

#[tokio::test]
async fn without_redis_there_is_an_error_and_hits_count_as_asked_for() {
    let mut server = RedisServer::start().await;
    let limiter = limiter_with(
        Store::Redis(RedisStore::new(client(&server), None)),
        LIMITS,
        options(),
    );
    server.kill();
    let asked = [
        with_hits("minute=x", 3),
        refund("hour=x", 2),
        descriptor("none=x"),
    ];
    let checked = check_at(&limiter, NOW, &request(&asked)).await;
    let error = checked.response.unwrap_err().to_string();
    assert!(error.contains("redis at 127.0.0.1:"), "{error}");
    let tallies: Vec<[u64; 7]> = checked.facts.tallies.iter().map(numbers).collect();
    assert_eq!(tallies, [[3, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0, 2]]);
}

#[tokio::test]
async fn a_check_that_is_dropped_leaves_the_hits_that_were_asked_for() {
    let server = RedisServer::start().await;
    let limiter = limiter_with(
        Store::Redis(RedisStore::new(client(&server), None)),
        LIMITS,
        options(),
    );
    let asked = request(&[
        with_hits("minute=x", 3),
        refund("hour=x", 2),
        descriptor("none=x"),
    ]);
    server.pause();
    let (mut facts, deadline) = (Facts::default(), Instant::now() + Duration::from_secs(60));
    {
        let check = limiter.check(&asked, Timestamp(NOW * 1_000_000), deadline, &mut facts);
        tokio::select! {
            biased;
            _ = check => panic!("redis does not answer"),
            () = std::future::ready(()) => {}
        }
    }
    let tallies: Vec<[u64; 7]> = facts.tallies.iter().map(numbers).collect();
    assert_eq!(tallies, [[3, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0, 2]]);
}

#[tokio::test]
async fn a_foreign_value_under_a_counter_key_is_an_error() {
    let server = RedisServer::start().await;
    let store = Store::Redis(RedisStore::new(client(&server), None));
    let normal = limiter_with(store.clone(), LIMITS, options());
    let stop = Options {
        over_limit_keys: OverLimitKeys::StopIncrement,
        ..options()
    };
    let stop = limiter_with(store, LIMITS, stop);
    // What the key holds; the error of a charge; the error of a read.
    let table = [
        (
            "SET test-domain_minute_x_999960 text",
            "ERR value is not an integer or out of range",
            "a counter holds 'text' where a number of hits was expected",
        ),
        (
            "SET test-domain_minute_x_999960 -100",
            "a counter holds '-99' where a number of hits was expected",
            "a counter holds '-99' where a number of hits was expected",
        ),
        (
            "DEL test-domain_minute_x_999960\r\nLPUSH test-domain_minute_x_999960 a",
            "WRONGTYPE Operation against a key holding the wrong kind of value",
            "WRONGTYPE Operation against a key holding the wrong kind of value",
        ),
    ];
    for (setup, charge, read) in table {
        let _ = server.raw(setup);
        for (limiter, expected) in [(&normal, charge), (&stop, read)] {
            let checked = check_at(limiter, NOW, &request(&[descriptor("minute=x")])).await;
            assert_eq!(
                checked.response.unwrap_err().to_string(),
                expected,
                "{setup}"
            );
        }
    }
}

#[tokio::test]
async fn a_refund_makes_no_counter_and_leaves_none_without_an_expiry() {
    for server in [
        RedisServer::start().await,
        RedisServer::start_program(valkey_program(), &[]).await,
    ] {
        let limiter = limiter_with(
            Store::Redis(RedisStore::new(client(&server), None)),
            LIMITS,
            options(),
        );
        let ask = async |asked: Descriptor| {
            outline(
                &check_at(&limiter, NOW, &request(&[asked]))
                    .await
                    .response
                    .unwrap(),
            )
        };
        assert_eq!(ask(refund("hour=x", 3)).await, [(Pass, 10)]);
        assert_eq!(server.raw("DBSIZE"), ":0\r\n");
        for (hits, back, left, count) in [(4, 1, 7, "3"), (0, 3, 10, "0"), (2, 9, 10, "0")] {
            ask(with_hits("hour=x", hits)).await;
            assert_eq!(ask(refund("hour=x", back)).await, [(Pass, left)]);
            assert_eq!(
                server.raw("GET test-domain_hour_x_997200"),
                format!("$1\r\n{count}\r\n")
            );
            let lifetime = server.raw("TTL test-domain_hour_x_997200");
            let seconds: i64 = lifetime[1..].trim().parse().unwrap();
            assert!(
                (3_500..=3_600).contains(&seconds),
                "{lifetime} after a refund of {back}"
            );
        }
    }
}
