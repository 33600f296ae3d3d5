//! Writes that are acknowledged when a replica has them, and what Redis does to keep them.

use std::num::NonZeroU16;
use std::time::Duration;

use tidegate_pipeline::test_util::{RedisCluster, RedisServer};
use tidegate_pipeline::{Client, Config};
use tidegate_workflow::{
    Begin, Definition, Engine, EngineError, NewWorkflow, Paused, RedisOptions, RedisStore, Store, StoreError,
    WorkflowId,
};

use super::open;
use crate::contract::PARTITIONS;
use crate::support::{at, definition, new, server as engine_over};

async fn open_waiting(config: Config, timeout: Duration) -> Store {
    let mut waiting = config.clone();
    (waiting.in_flight_commands, waiting.max_connections) = (1, 8);
    let options = RedisOptions::new("tg:", PARTITIONS, timeout).unwrap();
    let store = RedisStore::open(Client::new(config).unwrap(), options).await.unwrap();
    Store::Redis(store.acknowledged_by(NonZeroU16::MIN, Client::new(waiting).unwrap()))
}

/// Waits until a replica has all that its primary has.
fn await_replica(primary: &RedisServer) {
    while !primary.raw("INFO replication").contains("state=online") {
        std::thread::park_timeout(Duration::from_millis(10));
    }
}

fn keyed(key: &str) -> NewWorkflow {
    new(Definition { idempotency_key: Some(key.to_owned()), ..definition("a") }, Begin::Now)
}

async fn create(engine: &Engine, key: &str) -> Result<WorkflowId, EngineError> {
    engine.create(vec![keyed(key)], at(0)).await.remove(0).map(|created| created.workflow)
}

fn is_unknown<T>(answer: &Result<T, EngineError>) -> bool {
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
    let other = engine_over(&open_waiting(primary.config(), Duration::from_millis(600)).await).await;
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

/// How many primaries are killed: more by hand.
#[expect(clippy::disallowed_methods, reason = "how often is up to whoever starts the test")]
fn kills() -> usize {
    std::env::var("TIDEGATE_TEST_KILLS").map_or(2, |kills| kills.parse().expect("it is a number"))
}

/// On one machine a replica is hardly ever behind, so this finds gross mistakes only; the test above shows what is not acknowledged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_primary_takes_nothing_along_that_was_acknowledged() {
    let kills = kills();
    let mut cluster = RedisCluster::start(3, 1).await;
    let store = open_waiting(Config::cluster(cluster.addresses()), Duration::from_secs(2)).await;
    let engine = engine_over(&store).await;
    let mut acknowledged: Vec<WorkflowId> = Vec::new();
    for kill in 0..kills {
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let writers: Vec<_> = (0..16)
            .map(|writer| {
                let (engine, stopped) = (engine.clone(), stopped.clone());
                tokio::spawn(async move {
                    let mut created = Vec::new();
                    for number in 0.. {
                        if *stopped.borrow() {
                            break;
                        }
                        created.extend(create(&engine, &format!("{kill}-{writer}-{number}")).await);
                    }
                    created
                })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(500)).await;
        let victim = (0..cluster.servers().len()).find(|&at| at % 3 == kill % 3 && is_primary(&cluster, at));
        let victim = victim.or_else(|| (0..cluster.servers().len()).find(|&at| is_primary(&cluster, at))).unwrap();
        let name = cluster.id(victim);
        cluster.server_mut(victim).kill();
        // It comes back only after the failover: a primary that comes back empty would erase its replica.
        let others: Vec<usize> = (0..cluster.servers().len()).filter(|&at| at != victim).collect();
        while !others.iter().any(|&at| took_over(&cluster.servers()[at].raw("CLUSTER NODES"), &name)) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        stop.send_replace(true);
        for writer in writers {
            acknowledged.extend(writer.await.unwrap());
        }
        cluster.server_mut(victim).restart().await;
        while !cluster.servers().iter().all(is_in_step) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        for ids in acknowledged.chunks(500) {
            let found = store.load(ids).await.unwrap();
            let missing = found.iter().filter(|stored| stored.is_none()).count();
            assert_eq!(missing, 0, "of {} acknowledged, after kill {kill}", acknowledged.len());
        }
    }
    assert!(acknowledged.len() > 100 * kills, "{}", acknowledged.len());
}

fn is_primary(cluster: &RedisCluster, at: usize) -> bool {
    cluster.servers()[at].raw("INFO replication").contains("role:master")
}

/// Whether another node has the slots of the one that was killed.
fn took_over(nodes: &str, killed: &str) -> bool {
    let has_slots = |line: &&str| line.split(' ').count() > 8 && line.contains("master") && !line.contains("fail");
    nodes.lines().any(|line| line.starts_with(killed) && line.contains("fail"))
        && nodes.lines().filter(has_slots).count() == 3
}

/// Whether a node sees none that fails, and is in step if it is a replica.
fn is_in_step(server: &RedisServer) -> bool {
    let (nodes, about) = (server.raw("CLUSTER NODES"), server.raw("INFO replication"));
    !nodes.contains("fail")
        && nodes.lines().filter(|line| line.contains("slave")).count() == 3
        && (about.contains("role:master") || about.contains("master_link_status:up"))
}

#[tokio::test]
async fn what_could_be_lost_is_told() {
    let (store, redis) = open().await;
    let check = async |settings: &[&str], replicas: u16, told: &[&str]| {
        settings.iter().for_each(|setting| assert!(redis.raw(setting).starts_with('+'), "{setting}"));
        let risks = store.durability().await.unwrap().risks(replicas);
        assert_eq!(risks.len(), told.len(), "{settings:?}: {risks:?}");
        for (risk, told) in risks.iter().zip(told) {
            assert!(risk.contains(told), "{settings:?}: {risks:?}");
        }
    };
    check(&["CONFIG SET save ''"], 0, &["keeps nothing on disk"]).await;
    check(&["CONFIG SET save '900 1'"], 0, &["since its last snapshot"]).await;
    check(&["CONFIG SET appendonly yes", "CONFIG SET appendfsync no"], 0, &["does not sync its log"]).await;
    check(&["CONFIG SET appendfsync everysec"], 0, &[]).await;
    check(&["CONFIG SET maxmemory-policy allkeys-lru"], 0, &["maxmemory-policy noeviction"]).await;
    check(&["CONFIG SET maxmemory-policy noeviction"], 1, &["fewer replicas"]).await;
    let node = store.durability().await.unwrap().nodes.remove(0);
    assert_eq!((node.partitions, node.replicas), (usize::from(PARTITIONS), 0));
    let port = redis.port().to_string();
    let _replica = RedisServer::start_with(&["--replicaof", "127.0.0.1", &port]).await;
    await_replica(&redis);
    check(&[], 0, &["a failover loses"]).await;
    check(&[], 1, &[]).await;
    // A hosted service.
    let _ = redis.raw("ACL SETUSER default -config");
    check(&[], 1, &[]).await;
}
