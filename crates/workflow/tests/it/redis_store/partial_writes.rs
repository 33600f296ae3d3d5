//! A script that Redis stops in its middle.

use tidegate_pipeline::test_util::RedisServer;
use tidegate_workflow::{
    Action, Engine, EngineError, EngineOptions, Partition, RowSet, StartMode, Status, Store,
    StoreError, TimeIndex, WorkflowId, due_row,
};

use super::open;
use crate::contract::PARTITIONS;
use crate::support;

/// Every row of a set, in all partitions.
async fn rows(store: &Store, set: RowSet) -> Vec<Vec<u8>> {
    let mut rows = Vec::new();
    for partition in 0..PARTITIONS {
        rows.extend(
            store
                .rows(Partition(partition), set, None, 1_000)
                .await
                .unwrap(),
        );
    }
    rows
}

/// Asserts that a store has the rows of one workflow and no others.
async fn check_rows(engine: &Engine, id: WorkflowId) {
    let shown = engine.show(id).await.unwrap();
    let (mut ready, mut index) = shown.rows();
    ready.sort();
    index.sort();
    assert_eq!(rows(engine.store(), RowSet::Ready).await, ready);
    assert_eq!(rows(engine.store(), RowSet::Index).await, index);
    let timers = rows(engine.store(), RowSet::Due(TimeIndex::Timers)).await;
    let expected: Vec<_> = shown
        .meta()
        .timer
        .map(|at| due_row(at, id))
        .into_iter()
        .collect();
    assert_eq!(timers, expected);
}

/// Redis stops the script in its middle while `broken` holds: claims and creations were acknowledged, and rows were missing for ever.
async fn check_half_a_script(
    breaks: impl Fn(&RedisServer),
    mends: impl Fn(&RedisServer),
    reason: &str,
) {
    let (store, redis) = open().await;
    let engine = Engine::start(store, EngineOptions::default())
        .await
        .unwrap();
    let id = support::create(&engine, "a b c<a", StartMode::Now).await;
    let before = engine.show(id).await.unwrap();
    breaks(&redis);
    let refused = |error: &EngineError| {
        assert!(
            matches!(error, EngineError::Store(StoreError::PartialWrite { reason: found }) if found.contains(reason)),
            "{error:?}"
        );
    };
    let claimed = engine.claim(&support::claim(9), support::at(1)).await;
    refused(&claimed.unwrap_err());
    let mut keyed = support::definition("d");
    keyed.idempotency_key = Some("key".to_owned());
    let creation = support::new(keyed.clone(), StartMode::Now);
    let created = engine
        .create(vec![creation.clone()], support::at(1))
        .await
        .remove(0);
    if let Err(error) = &created {
        refused(error);
    }
    assert_eq!(
        engine.show(id).await.unwrap().meta(),
        before.meta(),
        "nothing counts that was not written as a whole"
    );
    mends(&redis);
    engine.sweep(support::at(2)).await.unwrap();
    if let Ok(created) = created {
        for action in [Action::Cancel, Action::Delete] {
            let acted = engine.act(created.workflow, action, support::at(2)).await;
            acted.unwrap();
        }
    }
    check_rows(&engine, id).await;
    let claimed = engine.claim(&support::claim(9), support::at(3)).await;
    assert_eq!(support::names(&claimed.unwrap()), ["a", "b"]);
    check_rows(&engine, id).await;
    let created = engine.create(vec![creation], support::at(3)).await;
    assert!(created[0].as_ref().is_ok_and(|created| !created.existing));
}

#[tokio::test]
async fn a_script_that_may_not_remove_rows_does_nothing_that_counts() {
    let acl = |rule: &'static str| {
        move |redis: &RedisServer| {
            assert!(
                redis
                    .raw(&format!("ACL SETUSER default {rule}"))
                    .contains("OK")
            )
        }
    };
    check_half_a_script(acl("-zrem"), acl("+zrem"), "needs GET").await;
}

#[tokio::test]
async fn a_script_that_may_not_write_states_does_nothing_that_counts() {
    let acl = |rule: &'static str| {
        move |redis: &RedisServer| {
            assert!(
                redis
                    .raw(&format!("ACL SETUSER default {rule}"))
                    .contains("OK")
            )
        }
    };
    check_half_a_script(acl("-mset"), acl("+mset"), "ZADD and ZREM").await;
}

#[tokio::test]
async fn a_script_that_meets_a_foreign_key_does_nothing_that_counts() {
    let tags = |redis: &RedisServer| -> Vec<String> {
        let keys = redis.raw("KEYS *:ix");
        let keys = keys.lines().filter(|key| key.ends_with(":ix"));
        keys.map(|key| key.strip_suffix("ix").unwrap().to_owned())
            .collect()
    };
    let breaks = |redis: &RedisServer| {
        for tag in tags(redis) {
            let _ = redis.raw(&format!("SET {tag}tm foreign"));
        }
    };
    let mends = |redis: &RedisServer| {
        for tag in tags(redis) {
            let _ = redis.raw(&format!("DEL {tag}tm"));
        }
    };
    check_half_a_script(breaks, mends, "WRONGTYPE").await;
}

#[tokio::test]
async fn what_a_script_did_by_half_is_removed_with_the_workflow() {
    let (store, redis) = open().await;
    let engine = Engine::start(store.clone(), EngineOptions::default())
        .await
        .unwrap();
    let id = support::create(&engine, "a b", StartMode::Later).await;
    let acl = |rule: &str| {
        assert!(
            redis
                .raw(&format!("ACL SETUSER default {rule}"))
                .contains("OK")
        )
    };
    acl("-mset");
    let started = engine.act(id, Action::Start, support::at(1)).await;
    assert!(
        matches!(
            started,
            Err(EngineError::Store(StoreError::PartialWrite { .. }))
        ),
        "{started:?}"
    );
    assert_eq!(
        rows(&store, RowSet::Ready).await.len(),
        2,
        "rows come before the state"
    );
    acl("+mset");
    engine
        .act(id, Action::Delete, support::at(2))
        .await
        .unwrap();
    for set in [RowSet::Ready, RowSet::Index, RowSet::Due(TimeIndex::Timers)] {
        assert_eq!(rows(&store, set).await, Vec::<Vec<u8>>::new(), "{set:?}");
    }
}

/// A server that is started again does not know what a script did by half.
#[tokio::test]
async fn what_a_script_did_by_half_lacks_nothing_after_a_restart() {
    for (breaks, mends) in [
        ("-zrem", "+zrem"),
        ("-zadd", "+zadd"),
        ("-hset", "+hset"),
        ("-mset", "+mset"),
        ("-unlink", "+unlink"),
    ] {
        let (store, redis) = open().await;
        let engine = Engine::start(store.clone(), EngineOptions::default())
            .await
            .unwrap();
        let id = support::create(&engine, "a b c<a", StartMode::Now).await;
        let old = support::create(&engine, "d", StartMode::Later).await;
        let acl = |rule: &str| {
            assert!(
                redis
                    .raw(&format!("ACL SETUSER default {rule}"))
                    .contains("OK")
            )
        };
        acl(breaks);
        let claimed = engine
            .claim(&support::claim(9), support::at(1))
            .await
            .unwrap_or_default();
        let deleted = engine.act(old, Action::Delete, support::at(1)).await;
        acl(mends);
        let engine = Engine::start(store, EngineOptions::default())
            .await
            .unwrap();
        for claimed in claimed {
            support::report(&engine, claimed.lease, support::success("1"), 2)
                .await
                .unwrap();
        }
        for seconds in 3..9 {
            for claimed in support::take(&engine, seconds).await {
                support::report(&engine, claimed.lease, support::success("1"), seconds)
                    .await
                    .unwrap();
            }
        }
        assert_eq!(
            engine.show(id).await.unwrap().meta().status,
            Status::Succeeded,
            "{breaks}"
        );
        if deleted.is_err() {
            // Gone, or still there as a whole.
            let _ = engine.act(old, Action::Delete, support::at(3)).await;
        }
        for seconds in 0..30 {
            while engine.sweep(support::at(100 + seconds)).await.unwrap() {}
        }
        check_rows(&engine, id).await;
    }
}

/// Writes rows that should not be there, as a person would.
fn plant(redis: &RedisServer, set: &str, score: u64, row: &[u8]) {
    let quoted: String = row.iter().map(|byte| format!("\\x{byte:02x}")).collect();
    let keys = redis.raw("KEYS *:ix");
    let index = keys.lines().find(|key| key.ends_with(":ix")).unwrap();
    let key = format!("{}{set}", index.strip_suffix("ix").unwrap());
    assert!(
        redis
            .raw(&format!("ZADD {key} {score} \"{quoted}\""))
            .contains(":1")
    );
}

#[tokio::test]
async fn rows_that_a_workflow_does_not_have_are_removed_when_they_are_met() {
    let (store, redis) = open().await;
    let engine = Engine::start(store.clone(), EngineOptions::default())
        .await
        .unwrap();
    let id = support::create(&engine, "a", StartMode::Now).await;
    let row = rows(&store, RowSet::Ready).await.remove(0);
    let claimed = engine
        .claim(&support::claim(1), support::at(1))
        .await
        .unwrap();
    support::report(&engine, claimed[0].lease, support::success("1"), 2)
        .await
        .unwrap();
    plant(&redis, "rq", 0, &row);
    plant(&redis, "tm", support::at(3).micros(), id.bytes());
    let engine = Engine::start(store, EngineOptions::default())
        .await
        .unwrap();
    let monitor = redis.monitor();
    for seconds in 0..20 {
        assert!(
            engine
                .claim(&support::claim(1), support::at(10 + seconds))
                .await
                .unwrap()
                .is_empty()
        );
        while engine.sweep(support::at(10 + seconds)).await.unwrap() {}
    }
    let _ = redis.raw("ECHO end");
    let scripts = monitor
        .commands_until("end")
        .iter()
        .filter(|command| command.contains("EVALSHA"))
        .count();
    assert!(scripts < 10, "{scripts} calls of the script");
    check_rows(&engine, id).await;
}
