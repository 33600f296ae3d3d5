//! Redis that loses the store's own keys under a running server, or does not take them at the first start.

use std::time::Duration;

use tidegate_pipeline::Client;
use tidegate_pipeline::test_util::RedisServer;
use tidegate_workflow::{
    Engine, EngineError, Paused, RedisOptions, RedisStore, Register, StartMode, Store, StoreError,
};

use super::{open, open_with, options};
use crate::contract::PARTITIONS;
use crate::support::{at, create, definition, new, server as engine_over};

async fn engine() -> (Engine, Store, RedisServer) {
    let (store, redis) = open().await;
    (engine_over(&store).await, store, redis)
}

/// Another server on the same Redis, which would make a store of so many partitions.
async fn another(redis: &RedisServer, partitions: u16) -> Store {
    let options = RedisOptions::new("tg:", partitions, Duration::from_secs(5)).unwrap();
    open_with(&Client::new(redis.config()).unwrap(), options).await
}

async fn paused(store: &Store) -> Vec<(String, String)> {
    store.register(Register::Queues).await.unwrap()
}

fn is_there(redis: &RedisServer, key: &str) -> bool {
    redis.raw(&format!("EXISTS {key}")).starts_with(":1")
}

#[tokio::test]
async fn what_redis_lost_of_the_store_itself_is_written_again() {
    let (engine, store, redis) = engine().await;
    create(&engine, "a", StartMode::Now).await;
    engine
        .set_queue_paused("default", Paused::Yes)
        .await
        .unwrap();
    for lost in [
        "FLUSHALL",
        "DEL tg:meta tg:queues tg:names",
        "DEL tg:queues",
        "DEL tg:names",
    ] {
        let _ = redis.raw(lost);
        engine.poll_store().await.unwrap();
        assert!(
            ["tg:meta", "tg:queues", "tg:names"]
                .iter()
                .all(|key| is_there(&redis, key)),
            "after {lost}"
        );
        assert_eq!(
            paused(&store).await,
            [("default".to_owned(), "paused".to_owned())],
            "after {lost}"
        );
        assert_eq!(
            another(&redis, 64).await.partitions(),
            PARTITIONS,
            "after {lost}"
        );
    }
    // Nobody could resume it: it was not found.
    assert_eq!(engine.has_queue("default").await, Ok(true));
    engine
        .set_queue_paused("default", Paused::No)
        .await
        .unwrap();
    assert_eq!(
        paused(&store).await,
        [("default".to_owned(), String::new())]
    );
}

#[tokio::test]
async fn what_is_acknowledged_after_a_loss_is_found_after_a_restart() {
    let (engine, _, redis) = engine().await;
    // Every partition has some.
    for _ in 0..100 {
        create(&engine, "a", StartMode::Now).await;
    }
    for _ in 0..10 {
        let _ = redis.raw("FLUSHALL");
        let next = create(&engine, "a", StartMode::Now).await;
        let restarted = another(&redis, 1).await;
        assert_eq!(restarted.partitions(), PARTITIONS);
        assert!(restarted.load(&[next]).await.unwrap()[0].is_some());
        for _ in 0..100 {
            create(&engine, "a", StartMode::Now).await;
        }
    }
}

/// Only partitions that had had workflows were doubted: what was created in another was acknowledged, and found by nobody.
#[tokio::test]
async fn what_is_acknowledged_in_a_partition_that_was_never_used_is_found() {
    for _ in 0..8 {
        let (engine, _, redis) = engine().await;
        let _ = redis.raw("FLUSHALL");
        let next = create(&engine, "a", StartMode::Now).await;
        let restarted = another(&redis, 1).await;
        assert_eq!(restarted.partitions(), PARTITIONS);
        assert!(restarted.load(&[next]).await.unwrap()[0].is_some());
    }
}

/// It was known that the store was another, and the creation was acknowledged because it had been written.
#[tokio::test]
async fn what_is_written_beside_the_store_of_another_server_is_not_acknowledged() {
    let (engine, _, redis) = engine().await;
    let _ = redis.raw("FLUSHALL");
    let _other = another(&redis, 1).await;
    let answer = engine
        .create(vec![new(definition("a"), StartMode::Now)], at(1))
        .await
        .remove(0);
    assert!(
        matches!(answer, Err(EngineError::Store(StoreError::Unknown { .. }))),
        "{answer:?}"
    );
}

#[tokio::test]
async fn a_report_that_finds_nothing_looks_whether_all_is_gone() {
    let (engine, _, redis) = engine().await;
    let id = create(&engine, "a", StartMode::Now).await;
    let _ = redis.raw("FLUSHALL");
    let gone = engine
        .act(id, tidegate_workflow::Action::Pause, at(1))
        .await;
    assert_eq!(gone, Err(EngineError::NoWorkflow { workflow: id }));
    assert!(is_there(&redis, "tg:meta"));
}

#[tokio::test]
async fn servers_that_make_a_lost_store_again_agree() {
    let (first, _, redis) = engine().await;
    create(&first, "a", StartMode::Now).await;
    let second = engine_over(&another(&redis, PARTITIONS).await).await;
    for _ in 0..20 {
        let _ = redis.raw("FLUSHALL");
        let opening = another(&redis, PARTITIONS);
        let (one, two, _) = tokio::join!(first.poll_store(), second.poll_store(), opening);
        assert_eq!((one, two), (Ok(false), Ok(false)));
        let id = redis.raw("HGET tg:meta id");
        for engine in [&first, &second] {
            engine.poll_store().await.unwrap();
            create(engine, "a", StartMode::Now).await;
        }
        assert_eq!(redis.raw("HGET tg:meta id"), id);
    }
}

#[tokio::test]
async fn a_store_that_another_server_made_with_other_partitions_is_not_written() {
    let (engine, store, redis) = engine().await;
    let Store::Redis(redis_store) = &store else {
        unreachable!()
    };
    create(&engine, "a", StartMode::Now).await;
    let _ = redis.raw("FLUSHALL");
    let other = another(&redis, 1).await;
    assert!(!redis_store.is_replaced());
    let error = engine
        .poll_store()
        .await
        .expect_err("it does not fit")
        .to_string();
    assert!(
        error.contains("schema")
            && error.contains("1 partitions")
            && error.contains("4 partitions"),
        "{error}"
    );
    assert!(redis_store.is_replaced());
    let refused = engine
        .create(vec![new(definition("a"), StartMode::Now)], at(1))
        .await
        .remove(0);
    assert!(
        matches!(
            refused,
            Err(EngineError::Store(StoreError::Unavailable { .. }))
        ),
        "{refused:?}"
    );
    assert_eq!(other.register(Register::Queues).await, Ok(Vec::new()));
}

#[tokio::test]
async fn a_redis_that_does_not_take_the_first_keys_is_named() {
    for (setting, cause) in [
        ("CONFIG SET maxmemory 1", "OOM"),
        ("CONFIG SET min-replicas-to-write 1", "NOREPLICAS"),
        ("REPLICAOF 127.0.0.1 1", "READONLY"),
    ] {
        let redis = RedisServer::start().await;
        let _ = redis.raw(setting);
        let options = RedisOptions::new("tg:", PARTITIONS, Duration::from_secs(1)).unwrap();
        let opened = RedisStore::open(Client::new(redis.config()).unwrap(), options).await;
        let error = opened.expect_err(cause);
        assert!(
            matches!(&error, StoreError::Unavailable { reason } if reason.contains(cause)),
            "{cause}: {error}"
        );
    }
}

/// It was made by a version that gave stores no ids.
#[tokio::test]
async fn a_store_without_an_id_gets_one_as_soon_as_redis_takes_it() {
    let (_, redis) = open().await;
    let _ = redis.raw("HDEL tg:meta id");
    let _ = redis.raw("CONFIG SET maxmemory 1");
    let store = open_with(&Client::new(redis.config()).unwrap(), options("tg:")).await;
    let engine = engine_over(&store).await;
    engine.poll_store().await.unwrap();
    let _ = redis.raw("CONFIG SET maxmemory 0");
    engine.poll_store().await.unwrap();
    assert!(redis.raw("HEXISTS tg:meta id").starts_with(":1"));
}
