//! Redis that forgets, is full, is gone, or holds something else.

use std::time::Duration;

use tidegate_pipeline::Client;
use tidegate_pipeline::test_util::RedisServer;
use tidegate_workflow::change::{Applied, Put};
use tidegate_workflow::{
    Partition, RedisOptions, RedisOptionsError, RedisStore, Store, StoreError,
};

use super::{open, open_with, open_with_client, options};
use crate::contract::{PARTITIONS, create, done, id, state};

#[tokio::test]
async fn a_script_that_redis_forgot_is_sent_again() {
    let (store, server) = open().await;
    let _ = server.raw("SCRIPT FLUSH");
    let changes = [
        create(id(1, 0), Put::default()),
        create(id(2, 0), Put::default()),
    ];
    assert_eq!(
        store.apply(Partition(0), &changes).await,
        Ok(vec![Applied::Done; 2])
    );
    // The text was remembered.
    let monitor = server.monitor();
    done(&store, create(id(3, 0), Put::default())).await;
    let _ = server.raw("ECHO end");
    let commands = monitor.commands_until("end");
    assert!(
        commands
            .iter()
            .all(|command| !command.starts_with("\"EVAL\"")),
        "{commands:?}"
    );
}

#[tokio::test]
async fn a_full_redis_writes_nothing_and_says_so() {
    let (store, server) = open().await;
    let _ = server.raw("CONFIG SET maxmemory 1");
    let refused = store
        .apply(Partition(0), &[create(id(1, 0), Put::default())])
        .await;
    assert!(
        matches!(&refused, Err(StoreError::Unavailable { reason }) if reason.contains("OOM")),
        "{refused:?}"
    );
    assert_eq!(state(&store, id(1, 0)).await, None);
    let _ = server.raw("CONFIG SET maxmemory 0");
    done(&store, create(id(1, 0), Put::default())).await;
}

#[tokio::test]
async fn what_a_silent_redis_did_is_unknown_and_what_was_not_sent_was_not_done() {
    let mut server = RedisServer::start().await;
    let client = Client::new(server.config()).unwrap();
    let short = RedisOptions::new("tg:", PARTITIONS, Duration::from_millis(300)).unwrap();
    let store = open_with(&client, short).await;
    let changes = [create(id(1, 0), Put::default())];
    server.pause();
    let silent = store.apply(Partition(0), &changes).await;
    assert!(
        matches!(silent, Err(StoreError::Unknown { .. })),
        "{silent:?}"
    );
    let read = store.load(&[id(1, 0)]).await;
    assert!(
        matches!(read, Err(StoreError::Unavailable { .. })),
        "{read:?}"
    );
    server.resume();
    server.kill();
    // The client learns of the end from its sockets; until then a command may get out.
    let gone = loop {
        match store.apply(Partition(0), &changes).await {
            Err(StoreError::Unknown { .. }) => {}
            other => break other,
        }
    };
    assert!(
        matches!(gone, Err(StoreError::Unavailable { .. })),
        "{gone:?}"
    );
}

#[tokio::test]
async fn a_store_keeps_the_partitions_it_was_made_with() {
    let (store, _server, client) = open_with_client().await;
    done(&store, create(id(1, 3), Put::default())).await;
    let again = open_with(
        &client,
        RedisOptions::new("tg:", 64, Duration::from_secs(5)).unwrap(),
    )
    .await;
    assert_eq!(again.partitions(), PARTITIONS);
    assert_eq!(state(&again, id(1, 3)).await, state(&store, id(1, 3)).await);
}

#[tokio::test]
async fn a_store_that_is_not_known_is_left_alone() {
    async fn check(facts: &str, refused: impl Fn(&StoreError) -> bool) {
        let server = RedisServer::start().await;
        let _ = server.raw(facts);
        let dump = server.raw("HGETALL tg:meta");
        let opened = RedisStore::open(Client::new(server.config()).unwrap(), options("tg:")).await;
        let error = opened.expect_err(facts);
        assert!(refused(&error), "{facts}: {error}");
        assert_eq!(server.raw("HGETALL tg:meta"), dump, "{facts}");
    }
    check("HSET tg:meta schema 2 partitions 16", |error| {
        matches!(error, StoreError::Schema { found: 2, .. })
    })
    .await;
    check("HSET tg:meta schema 1 partitions 3", |error| {
        matches!(error, StoreError::Corrupt { .. })
    })
    .await;
    check("HSET tg:meta schema 1 partitions 512", |error| {
        matches!(error, StoreError::Corrupt { .. })
    })
    .await;
    check("HSET tg:meta schema one", |error| {
        matches!(error, StoreError::Corrupt { .. })
    })
    .await;
    check("SET tg:meta 1", |error| {
        matches!(error, StoreError::Unavailable { .. })
    })
    .await;
}

#[tokio::test]
async fn a_redis_that_cannot_read_ranges_is_refused() {
    let server = RedisServer::start_with(&["--rename-command", "ZRANGE", ""]).await;
    let opened = RedisStore::open(Client::new(server.config()).unwrap(), options("tg:")).await;
    let error = opened.expect_err("it does not know ZRANGE").to_string();
    assert!(
        error.contains("6.2 or later") && error.contains("unknown command"),
        "{error}"
    );
}

#[tokio::test]
async fn a_state_without_meta_is_corrupt() {
    let (store, server) = open().await;
    done(&store, create(id(1, 0), Put::default())).await;
    let keys = server.raw("KEYS *:w:*");
    let key = keys.lines().last().unwrap();
    let _ = server.raw(&format!("HDEL {key} m"));
    let loaded = store.load(&[id(1, 0)]).await;
    assert!(
        matches!(&loaded, Err(StoreError::Corrupt { what, .. }) if what == key),
        "{loaded:?}"
    );
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let check = |prefix: &str, partitions, refused: Option<RedisOptionsError>| {
        assert_eq!(
            RedisOptions::new(prefix, partitions, Duration::from_secs(1)).err(),
            refused
        );
    };
    check("", 1, None);
    check("tg:", 256, None);
    for partitions in [0, 3, 512, 1_024] {
        check(
            "tg:",
            partitions,
            Some(RedisOptionsError::Partitions { partitions }),
        );
    }
    check(
        "{tg}:",
        16,
        Some(RedisOptionsError::Prefix {
            prefix: "{tg}:".to_owned(),
        }),
    );
}

/// Before there is a store, and after that.
#[tokio::test]
async fn a_redis_that_may_remove_keys_is_a_risk() {
    async fn check(policy: &str, risky: bool) {
        let server = RedisServer::start_with(&["--maxmemory-policy", policy]).await;
        let client = Client::new(server.config()).unwrap();
        let before = RedisStore::durability_at(&client, &options("tg:"))
            .await
            .unwrap();
        assert_eq!(
            server.raw("DBSIZE").trim(),
            ":0",
            "the question writes nothing"
        );
        let store: Store = open_with(&client, options("tg:")).await;
        let after = store.durability().await.unwrap();
        for durability in [before, after] {
            let risks = durability.risks(0);
            assert_eq!(
                risks
                    .iter()
                    .any(|risk| risk.contains("Set maxmemory-policy noeviction")),
                risky,
                "{risks:?}"
            );
        }
    }
    check("allkeys-lru", true).await;
    check("noeviction", false).await;
}
