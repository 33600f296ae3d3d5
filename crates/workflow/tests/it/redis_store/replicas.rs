//! Writes that are acknowledged when a replica has them, and what Redis does to keep them.

use std::num::NonZeroU16;
use std::time::Duration;

use tidegate_pipeline::test_util::RedisServer;
use tidegate_pipeline::{Client, Config};
use tidegate_workflow::{
    Definition, Engine, EngineError, NewWorkflow, Paused, RedisOptions, RedisStore, StartMode,
    Store, StoreError, WorkflowId,
};

use super::open;
use crate::contract::PARTITIONS;
use crate::support::{at, definition, new, server as engine_over};

pub(super) async fn open_waiting(config: Config, timeout: Duration) -> Store {
    let mut waiting = config.clone();
    (waiting.in_flight_commands, waiting.max_connections) = (1, 8);
    let options = RedisOptions::new("tg:", PARTITIONS, timeout).unwrap();
    let store = RedisStore::open(Client::new(config).unwrap(), options)
        .await
        .unwrap();
    Store::Redis(store.acknowledged_by(NonZeroU16::MIN, Client::new(waiting).unwrap()))
}

/// Waits until a replica has all that its primary has.
fn await_replica(primary: &RedisServer) {
    while !primary.raw("INFO replication").contains("state=online") {
        std::thread::park_timeout(Duration::from_millis(10));
    }
}

fn keyed(key: &str) -> NewWorkflow {
    new(
        Definition {
            idempotency_key: Some(key.to_owned()),
            ..definition("a")
        },
        StartMode::Now,
    )
}

pub(super) async fn create(engine: &Engine, key: &str) -> Result<WorkflowId, EngineError> {
    engine
        .create(vec![keyed(key)], at(0))
        .await
        .remove(0)
        .map(|created| created.workflow)
}

pub(super) fn is_unknown<T>(answer: &Result<T, EngineError>) -> bool {
    matches!(answer, Err(EngineError::Store(StoreError::Unknown { reason })) if reason.contains("replicas"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_no_replica_has_is_not_acknowledged_by_whatever_way() {
    let primary = RedisServer::start().await;
    let port = primary.port().to_string();
    let replica = RedisServer::start_with(&["--replicaof", "127.0.0.1", &port]).await;
    await_replica(&primary);
    let store = open_waiting(primary.config(), Duration::from_millis(600)).await;
    let engine = engine_over(&store).await;
    // A replica on a busy machine may be late with its first answer.
    while is_unknown(&create(&engine, "first").await) {}
    replica.pause();
    let lost = create(&engine, "second").await;
    assert!(is_unknown(&lost), "{lost:?}");
    // The primary has it, and nobody may be told so: by a repetition, at another server, or by what does nothing any more.
    let other =
        engine_over(&open_waiting(primary.config(), Duration::from_millis(600)).await).await;
    let again = create(&other, "second").await;
    assert!(is_unknown(&again), "{again:?}");
    let id = other.find_by_key("second").await.unwrap().unwrap();
    let pause = || other.act(id, tidegate_workflow::Action::Pause, at(1));
    for _ in 0..2 {
        let paused = pause().await;
        assert!(is_unknown(&paused), "{paused:?}");
    }
    let queue = other.set_queue_paused("default", Paused::Yes).await;
    assert!(is_unknown(&queue), "{queue:?}");
    replica.resume();
    await_replica(&primary);
    let mut again = create(&other, "second").await;
    while is_unknown(&again) {
        again = create(&other, "second").await;
    }
    assert_eq!(again, Ok(id));
    while is_unknown(&pause().await) {}
}

#[tokio::test]
async fn what_could_be_lost_is_told() {
    let (store, redis) = open().await;
    let check = async |settings: &[&str], replicas: u16, told: &[&str]| {
        settings
            .iter()
            .for_each(|setting| assert!(redis.raw(setting).starts_with('+'), "{setting}"));
        let risks = store.durability().await.unwrap().risks(replicas);
        assert_eq!(risks.len(), told.len(), "{settings:?}: {risks:?}");
        for (risk, told) in risks.iter().zip(told) {
            assert!(risk.contains(told), "{settings:?}: {risks:?}");
        }
    };
    check(&["CONFIG SET save ''"], 0, &["keeps nothing on disk"]).await;
    check(
        &["CONFIG SET save '900 1'"],
        0,
        &["since its last snapshot"],
    )
    .await;
    check(
        &["CONFIG SET appendonly yes", "CONFIG SET appendfsync no"],
        0,
        &["does not sync its log"],
    )
    .await;
    check(&["CONFIG SET appendfsync everysec"], 0, &[]).await;
    check(
        &["CONFIG SET maxmemory-policy allkeys-lru"],
        0,
        &["maxmemory-policy noeviction"],
    )
    .await;
    check(
        &["CONFIG SET maxmemory-policy noeviction"],
        1,
        &["fewer replicas"],
    )
    .await;
    let node = store.durability().await.unwrap().nodes.remove(0);
    assert_eq!(
        (node.partitions, node.replicas),
        (usize::from(PARTITIONS), 0)
    );
    let port = redis.port().to_string();
    let _replica = RedisServer::start_with(&["--replicaof", "127.0.0.1", &port]).await;
    await_replica(&redis);
    check(&[], 0, &["a failover loses"]).await;
    check(&[], 1, &[]).await;
    // A hosted service.
    let _ = redis.raw("ACL SETUSER default -config");
    check(&[], 1, &[]).await;
}
