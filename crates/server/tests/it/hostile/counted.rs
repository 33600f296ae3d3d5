//! What is charged is counted, whatever callers do.

use std::net::TcpStream;

use h2::Reason;
use tidegate_pipeline::test_util::RedisServer;
use tokio::task::JoinSet;

use super::grpc::{call, connect};
use super::http::stopped;
use super::{assert_answers, grown_by, until_closed};
use crate::operate::metrics::metric;
use crate::operate::process::Process;
use crate::support::{LIMITS, Limits, Server, await_that, get, post};

/// The domain `shop` and the descriptor `named: x`, framed.
const CHARGED: &[u8] = b"\0\0\0\0\x14\x0a\x04shop\x12\x0c\x0a\x0a\x0a\x05named\x12\x01x";

/// Whoever reset each call was charged in Redis and not in metrics.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_that_redis_was_charged_for_is_counted() {
    let redis = RedisServer::start().await;
    let limits = Limits::new(LIMITS);
    let url = redis.address().to_string();
    let settings = [
        ("RUNTIME_ROOT", limits.root()),
        ("REDIS_URL", url.as_str()),
        ("REDIS_SOCKET_TYPE", "tcp"),
    ];
    let server = tokio::task::block_in_place(|| Process::start(&settings));
    let grpc = server.address("gRPC");
    let attack = async {
        let mut attackers = JoinSet::new();
        for _ in 0..20 {
            attackers.spawn(reset_calls(grpc));
        }
        for _ in 0..20 {
            assert_answers(grpc).await;
        }
        while attackers.join_next().await.is_some() {}
    };
    let grown = grown_by(&server, attack).await;
    assert!(grown < 64, "{grown} MiB");
    let charged = || {
        let script = "local sum = 0 for _, key in ipairs(redis.call('KEYS', '*shop_named*')) do sum = sum + redis.call('GET', key) end return sum";
        redis
            .raw(&format!("EVAL \"{script}\" 0"))
            .trim()
            .trim_start_matches(':')
            .parse::<u64>()
            .unwrap()
    };
    let stat = |name: &str| {
        let stats = get(server.address("debug"), "/stats").body;
        stats
            .lines()
            .find_map(|line| {
                line.strip_prefix(name)?
                    .strip_prefix(": ")?
                    .parse::<u64>()
                    .ok()
            })
            .unwrap_or(0)
    };
    assert!(charged() > 0, "some calls were begun");
    // As in the reference, a call that was given up before Redis was asked is counted too, and is an error.
    await_that(
        "what was charged is counted, and the rest are errors",
        || {
            let counted = stat("ratelimit.service.rate_limit.shop.named.total_hits");
            let errors = stat("ratelimit.service.call.should_rate_limit.redis_error");
            (charged()..=charged() + errors).contains(&counted)
        },
    );
}

/// A connection that resets each of a hundred calls once the server may have begun with it.
async fn reset_calls(grpc: std::net::SocketAddr) {
    let (mut sender, _tasks) = connect(grpc, 65_535).await;
    for number in 0..100 {
        // The server may have ended the connection.
        let Ok(ready) = sender.ready().await else {
            return;
        };
        sender = ready;
        let (answer, mut body) = call(&mut sender);
        if body.send_data(CHARGED.into(), true).is_err() {
            return;
        }
        // Some wait for their answer, so that the others are reset at every stage.
        if number % 4 == 0 {
            let _ = answer.await;
        } else {
            tokio::task::yield_now().await;
            body.send_reset(Reason::CANCEL);
        }
    }
}

/// Nobody could see from outside which bound was met.
#[test]
fn what_bounds_did_is_in_metrics() {
    let server = Server::start(&[
        ("TIDEGATE_MAX_CONNECTIONS", "4"),
        ("TIDEGATE_MAX_DESCRIPTORS", "2"),
    ]);
    let metric = |name: &str| metric(server.debug(), name);
    let idle: Vec<TcpStream> = (0..10)
        .map(|_| TcpStream::connect(server.grpc()).unwrap())
        .collect();
    let closed = |port, reason| {
        format!(r#"tidegate_connections_closed_total{{port="{port}",reason="{reason}"}}"#)
    };
    await_that("six make room", || metric(&closed("grpc", "room")) == 6.0);
    await_that("six are gone", || {
        metric(r#"tidegate_connections{port="grpc"}"#) == 4.0
    });
    assert_eq!(
        metric(r#"tidegate_connections_accepted_total{port="grpc"}"#),
        10.0
    );
    assert_eq!(
        metric(r#"tidegate_connections_refused_total{port="grpc"}"#),
        0.0
    );
    drop(idle);
    await_that("clients that leave are not counted", || {
        metric(r#"tidegate_connections{port="grpc"}"#) == 0.0
    });

    let mut silent = TcpStream::connect(server.http()).unwrap();
    until_closed(&mut stopped(server.http(), 100, 1));
    until_closed(&mut silent);
    assert_eq!(metric(&closed("http", "silent")), 1.0);
    assert_eq!(
        metric(r#"tidegate_bodies_refused_total{port="http",reason="slow"}"#),
        1.0
    );

    let entry = r#"{"key":"k"}"#;
    let many = |descriptors, entries| {
        let descriptor = format!(r#"{{"entries":[{}]}}"#, vec![entry; entries].join(","));
        format!(
            r#"{{"domain":"shop","descriptors":[{}]}}"#,
            vec![descriptor; descriptors].join(",")
        )
    };
    assert_eq!(post(server.http(), "/json", &many(3, 1)).status, 400);
    assert_eq!(post(server.http(), "/json", &many(2, 17)).status, 400);
    assert_eq!(post(server.http(), "/json", &many(2, 16)).status, 200);
    assert_eq!(
        metric(r#"tidegate_requests_refused_total{reason="descriptors"}"#),
        1.0
    );
    assert_eq!(
        metric(r#"tidegate_requests_refused_total{reason="entries"}"#),
        1.0
    );
}
