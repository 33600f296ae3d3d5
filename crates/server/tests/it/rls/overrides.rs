//! Overrides that one server keeps, and all servers of a Redis obey.

use std::time::{Duration, Instant};

use tidegate_pipeline::Client;
use tidegate_pipeline::test_util::RedisServer;
use tidegate_ratelimit::{
    EffectKind, Entry, LimitOverride, OverrideEffect, OverrideStore, OverrideTarget, Reach,
    Timestamp,
};

use crate::support::{PATIENCE, Server, ask, request};

const OK: i32 = 1;
const OVER_LIMIT: i32 = 2;

async fn start(redis: &RedisServer, api: &'static str) -> Server {
    let url = redis.address().to_string();
    let start = move || {
        let more = [
            ("REDIS_URL", url.as_str()),
            ("REDIS_SOCKET_TYPE", "tcp"),
            ("CACHE_KEY_PREFIX", "edge:"),
            ("TIDEGATE_HTTP_ADDR", api),
        ];
        Server::start(&more)
    };
    tokio::task::spawn_blocking(start).await.unwrap()
}

fn pause() -> LimitOverride {
    let entries = vec![Entry {
        key: "named".to_owned(),
        value: "x".to_owned(),
    }];
    LimitOverride {
        target: OverrideTarget::Key {
            domain: "shop".to_owned(),
            entries,
        },
        effect: OverrideEffect::Paused(Reach::JobsAndRequests),
        until: None,
        by: "ada".to_owned(),
        at: Timestamp(0),
        reason: String::new(),
    }
}

fn deadline() -> Instant {
    Instant::now() + PATIENCE
}

async fn code(server: &Server) -> i32 {
    ask(
        &server.channel().await,
        request("shop", &[&[("named", "x")]]),
    )
    .await
    .unwrap()
    .overall_code
}

async fn await_code(server: &Server, expected: i32) {
    let latest = deadline();
    while code(server).await != expected {
        assert!(
            Instant::now() < latest,
            "the server does not see the override"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn all_servers_of_a_redis_obey_also_those_that_start_later() {
    let redis = RedisServer::start().await;
    let (first, second) = (
        start(&redis, "127.0.0.1:0").await,
        start(&redis, "127.0.0.1:0").await,
    );
    let store = OverrideStore::redis(Client::new(redis.config()).unwrap(), "edge:");
    store.put(&pause(), Timestamp(0), deadline()).await.unwrap();
    await_code(&first, OVER_LIMIT).await;
    await_code(&second, OVER_LIMIT).await;
    let third = start(&redis, "127.0.0.1:0").await;
    assert_eq!(
        code(&third).await,
        OVER_LIMIT,
        "it reads before its ports open"
    );

    assert!(
        store
            .remove(&pause().target, EffectKind::Paused, deadline())
            .await
            .unwrap()
    );
    for server in [&first, &second, &third] {
        await_code(server, OK).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_server_without_the_api_asks_for_no_overrides() {
    let redis = RedisServer::start().await;
    let store = OverrideStore::redis(Client::new(redis.config()).unwrap(), "edge:");
    store.put(&pause(), Timestamp(0), deadline()).await.unwrap();
    let server = start(&redis, "").await;
    assert_eq!(code(&server).await, OK);
    let said = redis.raw("INFO commandstats");
    // A server that reads sends it, as there is an override. HGET is in the script that keeps one.
    assert!(!said.contains("cmdstat_hgetall:"), "{said}");
}
