//! The server on a real Redis.

use std::time::{Duration, Instant};

use tidegate_pipeline::test_util::RedisServer;
use tonic::Code;

use crate::support::{Limits, Server, ask, await_that, get, request};

async fn start(redis: &RedisServer, more: &[(&str, &str)]) -> Server {
    let url = redis.address().to_string();
    let more = [&[("REDIS_URL", url.as_str()), ("REDIS_SOCKET_TYPE", "tcp")], more].concat();
    let more: Vec<_> = more.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
    let start = move || {
        let more: Vec<_> = more.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        Server::start(&more)
    };
    tokio::task::spawn_blocking(start).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn counters_are_in_redis_under_the_references_names() {
    let redis = RedisServer::start().await;
    let server = start(&redis, &[("CACHE_KEY_PREFIX", "edge:")]).await;
    let channel = server.channel().await;
    for remaining in [2, 1] {
        let answer = ask(&channel, request("shop", &[&[("user", "ada")]])).await.unwrap();
        assert_eq!(answer.statuses[0].limit_remaining, remaining);
    }
    let keys = redis.raw("KEYS *");
    assert!(keys.contains("edge:shop_user_ada_"), "{keys}");
    assert!(server.stat("ratelimit.redis_pool.cx_active") >= 1);
    assert!(server.started.store.starts_with("redis at 127.0.0.1:"), "{}", server.started.store);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn every_core_counts_in_the_same_redis() {
    let redis = RedisServer::start().await;
    let server = start(&redis, &[("TIDEGATE_CORES", "3")]).await;
    for used in 1..=9 {
        let answer = ask(&server.channel().await, request("shop", &[&[("named", "x")]])).await.unwrap();
        assert_eq!(answer.statuses[0].limit_remaining, 100 - used);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn limits_per_second_have_a_redis_of_their_own() {
    let (redis, second) = (RedisServer::start().await, RedisServer::start().await);
    let limits = Limits::new(
        "domain: d\ndescriptors:\n  - {key: s, rate_limit: {unit: second, requests_per_unit: 9}}\n  - {key: m, rate_limit: {unit: minute, requests_per_unit: 9}}\n",
    );
    let url = second.address().to_string();
    let server = start(
        &redis,
        &[("RUNTIME_ROOT", limits.root()), ("REDIS_PERSECOND", "true"), ("REDIS_PERSECOND_URL", url.as_str())],
    )
    .await;
    ask(&server.channel().await, request("d", &[&[("s", "x")], &[("m", "x")]])).await.unwrap();
    let (main, second) = (redis.raw("KEYS *"), second.raw("KEYS *"));
    assert!(main.contains("d_m_x_") && !main.contains("d_s_x_"), "{main}");
    assert!(second.contains("d_s_x_") && !second.contains("d_m_x_"), "{second}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_ports_open_when_redis_answers() {
    let mut redis = RedisServer::start().await;
    let address = redis.address().to_string();
    redis.kill();
    let starting = tokio::task::spawn_blocking(move || {
        let fast = ("REDIS_STARTUP_INITIAL_INTERVAL", "20ms");
        Server::start(&[("REDIS_URL", address.as_str()), fast, ("REDIS_STARTUP_MAX_INTERVAL", "20ms")])
    });
    assert!(!starting.is_finished());
    redis.restart().await;
    let server = starting.await.unwrap();
    assert_eq!(get(server.http(), "/healthcheck").status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_redis_that_goes_away_fails_calls_in_time_and_comes_back() {
    let mut redis = RedisServer::start().await;
    let server = start(&redis, &[("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", "true")]).await;
    let channel = server.channel().await;
    ask(&channel, request("shop", &[&[("named", "x")]])).await.unwrap();
    redis.kill();
    let asked = Instant::now();
    let error = ask(&channel, request("shop", &[&[("named", "x")]])).await.unwrap_err();
    assert_eq!(error.code(), Code::Unknown, "{error:?}");
    assert!(asked.elapsed() < Duration::from_secs(3), "{:?}", asked.elapsed());
    assert!(server.stat("ratelimit.service.call.should_rate_limit.redis_error") >= 1);
    // What needs no counter is answered all the same.
    ask(&channel, request("shop", &[&[("free", "x")]])).await.unwrap();
    let healthy = |status| get(server.http(), "/healthcheck").status == status;
    await_that("it is unhealthy", || healthy(500));

    redis.restart().await;
    await_that("it is healthy", || healthy(200));
    let answer = ask(&channel, request("shop", &[&[("named", "x")]])).await.unwrap();
    assert_eq!(answer.statuses[0].limit_remaining, 99, "a new Redis counts anew");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_redis_that_hangs_fails_calls_at_their_deadline() {
    let redis = RedisServer::start().await;
    let server = start(&redis, &[("TIDEGATE_CALL_TIMEOUT", "400ms")]).await;
    let channel = server.channel().await;
    ask(&channel, request("shop", &[&[("named", "x")]])).await.unwrap();
    redis.pause();
    for (timeout, at_least, at_most) in [(None, 390, 2000), (Some(50), 40, 300)] {
        let mut message = tonic::Request::new(request("shop", &[&[("named", "x")]]));
        if let Some(timeout) = timeout {
            message.set_timeout(Duration::from_millis(timeout));
        }
        let asked = Instant::now();
        ask(&channel, message).await.unwrap_err();
        let elapsed = asked.elapsed().as_millis();
        assert!((at_least..at_most).contains(&elapsed), "{elapsed} ms for {timeout:?}");
    }
    redis.resume();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_password_is_used_and_not_shown() {
    let redis = RedisServer::start_with(&["--requirepass", "hunter2"]).await;
    let url = format!("redis://:hunter2@{}/3", redis.address());
    let server = start(&redis, &[("REDIS_AUTH", "hunter2")]).await;
    ask(&server.channel().await, request("shop", &[&[("named", "x")]])).await.unwrap();
    drop(server);
    let server = tokio::task::spawn_blocking(move || Server::start(&[("REDIS_URL", url.as_str())])).await.unwrap();
    let answer = ask(&server.channel().await, request("shop", &[&[("named", "x")]])).await.unwrap();
    assert_eq!(answer.statuses[0].limit_remaining, 99, "another database");
    assert!(!server.started.to_string().contains("hunter2"));
}
