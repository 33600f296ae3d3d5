//! Stores that refuse writes, are full, or have lost a part of themselves: what works goes on, and little is asked of what does not.

mod cluster;
mod probe;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use tidegate_pipeline::test_util::{RedisCluster, RedisServer};
use tidegate_pipeline::{Client, Config};
use tidegate_workflow::{
    Action, CallKind, Definition, Engine, EngineError, Fault, Filter, Page, Partition, Query,
    RedisOptions, RedisStore, Retention, SimulatedStore, StartMode, Store, StoreError, WorkflowId,
};

use crate::support::{
    at, claim, create, create_of, definition, names, redis, server, simulated, sqlite, succeed,
    take,
};

/// Workflows whose only job is leased, so that a sweep after the lease has something to write.
async fn leased(engine: &Engine, number: usize) {
    for _ in 0..number {
        create(engine, "a", StartMode::Now).await;
    }
    assert_eq!(
        engine.claim(&claim(number), at(0)).await.unwrap().len(),
        number
    );
}

async fn probe_all(engine: &Engine) {
    for partition in 0..engine.store().partitions() {
        engine.probe(Partition(partition)).await;
    }
}

/// How often a write was asked for.
struct Writes {
    refused: Arc<AtomicBool>,
    number: Arc<AtomicU32>,
}

fn refusing(store: &Store) -> Writes {
    let Store::Simulated(simulated) = store else {
        panic!("a simulated store")
    };
    refusing_in(simulated)
}

fn refusing_in(simulated: &SimulatedStore) -> Writes {
    let refused = Arc::new(AtomicBool::new(false));
    let number = Arc::new(AtomicU32::new(0));
    let writes = Writes {
        refused: Arc::clone(&refused),
        number: Arc::clone(&number),
    };
    simulated.inject(move |call| {
        if call == CallKind::Read {
            return Fault::None;
        }
        number.fetch_add(1, Relaxed);
        if refused.load(Relaxed) {
            Fault::Refused
        } else {
            Fault::None
        }
    });
    writes
}

#[tokio::test]
async fn what_cannot_be_written_is_not_tried_again_until_a_probe_says_so() {
    let (store, ()) = simulated().await;
    let engine = server(&store).await;
    leased(&engine, 400).await;
    let writes = refusing(&store);
    writes.refused.store(true, Relaxed);
    writes.number.store(0, Relaxed);
    for turn in 0..100 {
        assert_eq!(
            engine.sweep_working(at(60 + turn)).await,
            Ok(false),
            "there is no reason to hurry"
        );
    }
    let tried = writes.number.load(Relaxed);
    assert!(tried <= 4, "{tried} writes for 4 partitions");
    let unserved = engine.take_missed_work().expect("they were due");
    assert_eq!(unserved.attempts, 400);
    assert!(
        matches!(
            unserved.error,
            EngineError::Store(StoreError::Unavailable { .. })
        ),
        "{unserved:?}"
    );
    let troubles = engine.store_failures();
    assert_eq!(troubles.len(), 4);
    assert!(
        troubles
            .values()
            .all(|trouble| trouble.writes.is_some() && trouble.reads.is_none()),
        "{troubles:?}"
    );
    // A probe that is refused changes nothing.
    probe_all(&engine).await;
    assert_eq!(engine.store_failures().len(), 4);
    // One that is not lets a sweep try one workflow of each partition, then more and more.
    writes.refused.store(false, Relaxed);
    probe_all(&engine).await;
    assert!(engine.store_failures().is_empty());
    assert_eq!(engine.sweep_working(at(200)).await, Ok(true));
    let served = take(&engine, 201).await.len();
    assert_eq!(served, 4, "a partition has to prove itself");
    for _ in 0..10 {
        engine.sweep_working(at(202)).await.unwrap();
    }
    assert_eq!(take(&engine, 203).await.len(), 396);
    assert_eq!(engine.take_missed_work(), None);
}

/// A job that was ready again looked like a stale row. With a store that refused to write it anew, its workflow was passed over for a minute, also
/// when its leases ended.
#[tokio::test]
async fn what_looked_stale_while_nothing_could_be_written_is_served_when_the_store_works() {
    let (store, ()) = simulated().await;
    let engine = server(&store).await;
    let other = server(&store).await;
    let id = create(&engine, "a b", StartMode::Now).await;
    assert_eq!(names(&engine.claim(&claim(1), at(1)).await.unwrap()), ["a"]);
    other.act(id, Action::Pause, at(2)).await.unwrap();
    assert!(engine.claim(&claim(1), at(3)).await.unwrap().is_empty());
    other.act(id, Action::Resume, at(4)).await.unwrap();
    let writes = refusing(&store);
    writes.refused.store(true, Relaxed);
    assert!(take(&engine, 5).await.is_empty());
    let tried = writes.number.load(Relaxed);
    assert!(tried > 0, "the row was to be removed");
    for _ in 0..10 {
        assert!(take(&engine, 6).await.is_empty());
    }
    assert_eq!(
        writes.number.load(Relaxed),
        tried,
        "it is not tried again while the store refuses it"
    );
    let troubles = engine.store_failures();
    writes.refused.store(false, Relaxed);
    probe_all(&engine).await;
    engine.sweep(at(40)).await.unwrap();
    assert_eq!(names(&take(&engine, 41).await), ["a", "b"]);
    assert!(troubles[&id.partition()].removals.is_some(), "{troubles:?}");
}

#[tokio::test]
async fn a_write_of_anybody_shows_that_writes_work() {
    let (store, ()) = simulated().await;
    let engine = server(&store).await;
    // Its names are known from now on.
    create(&engine, "a", StartMode::Later).await;
    let writes = refusing(&store);
    writes.refused.store(true, Relaxed);
    for _ in 0..200 {
        let refused = engine
            .create(
                vec![crate::support::new(definition("a"), StartMode::Later)],
                at(0),
            )
            .await
            .remove(0);
        assert!(matches!(refused, Err(EngineError::Store(_))), "{refused:?}");
    }
    assert_eq!(engine.store_failures().len(), 4);
    writes.refused.store(false, Relaxed);
    for key in 0..200 {
        // A key leads also to where it failed.
        let definition = Definition {
            idempotency_key: Some(key.to_string()),
            ..definition("a")
        };
        create_of(&engine, definition, StartMode::Later).await;
    }
    assert!(engine.store_failures().is_empty());
}

/// Ends a workflow that is kept for a minute.
async fn ended(engine: &Engine) -> WorkflowId {
    let retention = Some(Retention::For(Duration::from_secs(60)));
    let definition = Definition {
        retention,
        ..definition("a")
    };
    let id = create_of(engine, definition, StartMode::Now).await;
    let lease = engine
        .claim(&claim(1), at(0))
        .await
        .unwrap()
        .remove(0)
        .lease;
    succeed(engine, lease, 1).await.unwrap();
    id
}

#[tokio::test]
async fn a_full_redis_gets_rid_of_what_has_expired_beside_leases_that_cannot_end() {
    let (store, server_of): (Store, RedisServer) = redis().await;
    let engine = server(&store).await;
    let mut kept = Vec::new();
    for _ in 0..40 {
        kept.push(ended(&engine).await);
    }
    leased(&engine, 40).await;
    let _ = server_of.raw("CONFIG SET maxmemory 1");
    for _ in 0..3 {
        engine.sweep_working(at(3_600)).await.unwrap();
        probe_all(&engine).await;
    }
    let left = store.load(&kept).await.unwrap();
    assert_eq!(left.iter().flatten().count(), 0, "what has expired is gone");
    let troubles = engine.store_failures();
    assert_eq!(troubles.len(), 4, "{troubles:?}");
    for trouble in troubles.values() {
        assert!(
            matches!(&trouble.writes, Some(error) if error.to_string().contains("OOM")),
            "{trouble:?}"
        );
        assert_eq!((&trouble.reads, &trouble.removals), (&None, &None));
    }
    // There is room again.
    let _ = server_of.raw("CONFIG SET maxmemory 0");
    probe_all(&engine).await;
    assert!(engine.store_failures().is_empty());
    while engine.sweep_working(at(3_601)).await.unwrap() {}
    assert_eq!(take(&engine, 3_602).await.len(), 40);
}

#[tokio::test]
async fn a_script_that_stops_half_way_is_trouble_and_is_not_asked_for_again() {
    let (store, redis) = redis().await;
    let engine = server(&store).await;
    leased(&engine, 400).await;
    assert!(redis.raw("ACL SETUSER default -hset").contains("OK"));
    engine.sweep_working(at(60)).await.unwrap();
    assert_eq!(
        engine.store_failures().len(),
        4,
        "{:?}",
        engine.store_failures()
    );
    let before = redis.commands_processed();
    for turn in 0..100 {
        engine.sweep_working(at(70 + turn)).await.unwrap();
        probe_all(&engine).await;
        assert_eq!(engine.store_failures().len(), 4);
    }
    let each = (redis.commands_processed() - before) / 100;
    assert!(each < 150, "{each} commands for 4 probes");
    assert!(redis.raw("ACL SETUSER default +hset").contains("OK"));
    probe_all(&engine).await;
    assert!(engine.store_failures().is_empty());
    while engine.sweep_working(at(200)).await.unwrap() {}
    assert_eq!(take(&engine, 201).await.len(), 400);
}

#[tokio::test]
async fn a_store_that_never_says_yes_is_the_reason_and_not_other_servers() {
    let (store, ()) = simulated().await;
    let engine = server(&store).await;
    create(&engine, "a", StartMode::Later).await;
    let Store::Simulated(simulated) = &store else {
        panic!("a simulated store")
    };
    simulated.inject(|call| {
        if call == CallKind::Write {
            Fault::RequestLost
        } else {
            Fault::None
        }
    });
    let refused = engine
        .create(
            vec![crate::support::new(definition("a"), StartMode::Later)],
            at(0),
        )
        .await
        .remove(0);
    assert!(
        matches!(
            refused,
            Err(EngineError::Store(StoreError::Unavailable { .. }))
        ),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_full_redis_hands_out_no_job_whose_result_it_would_refuse() {
    let (store, redis) = redis().await;
    let engine = server(&store).await;
    for _ in 0..10 {
        create(&engine, "a b c", StartMode::Now).await;
    }
    // Leases of their workflows exist already, and later ones need no timer.
    assert_eq!(engine.claim(&claim(10), at(0)).await.unwrap().len(), 10);
    let _ = redis.raw("CONFIG SET maxmemory 1");
    let refused = engine.claim(&claim(20), at(5)).await;
    assert!(
        matches!(&refused, Err(EngineError::Store(error)) if error.to_string().contains("OOM")),
        "{refused:?}"
    );
    let _ = redis.raw("CONFIG SET maxmemory 0");
    assert_eq!(engine.claim(&claim(30), at(6)).await.unwrap().len(), 20);
}

#[tokio::test]
async fn ready_rows_of_jobs_that_are_not_ready_go_and_starve_nobody() {
    let (store, redis) = redis().await;
    let engine = server(&store).await;
    for _ in 0..30 {
        create(&engine, "a b<a", StartMode::Now).await;
    }
    let keys = redis.raw("KEYS *:rq");
    let tags: Vec<&str> = keys
        .lines()
        .filter_map(|line| line.strip_suffix("rq"))
        .collect();
    tags.iter()
        .for_each(|tag| drop(redis.raw(&format!("COPY {tag}rq {tag}copy"))));
    for claimed in engine.claim(&claim(30), at(1)).await.unwrap() {
        succeed(&engine, claimed.lease, 2).await.unwrap();
    }
    for claimed in engine.claim(&claim(15), at(3)).await.unwrap() {
        succeed(&engine, claimed.lease, 4).await.unwrap();
    }
    // The rows of the first jobs are back, and half of those of the second are gone.
    tags.iter()
        .for_each(|tag| drop(redis.raw(&format!("RENAME {tag}copy {tag}rq"))));
    let next = server(&store).await;
    create(&next, "new", StartMode::Now).await;
    let mut names = Vec::new();
    for _ in 0..60 {
        let claimed = next.claim(&claim(1), at(5)).await.unwrap();
        names.extend(
            crate::support::names(&claimed)
                .into_iter()
                .map(str::to_owned),
        );
        let _ = next.poll_store().await;
    }
    names.sort();
    let mut expected = vec!["b".to_owned(); 15];
    expected.push("new".to_owned());
    assert_eq!(names, expected);
}

#[tokio::test]
async fn jobs_survive_a_claim_that_stopped_half_way_and_the_end_of_its_server() {
    async fn check(breaks: &str, mends: &str) {
        let (store, redis) = redis().await;
        let engine = server(&store).await;
        for _ in 0..40 {
            create(&engine, "a", StartMode::Now).await;
        }
        let keys = redis.raw("KEYS *:ix");
        let tags: Vec<&str> = keys
            .lines()
            .filter_map(|line| line.strip_suffix("ix"))
            .collect();
        let each = |command: &str| {
            tags.iter()
                .for_each(|tag| drop(redis.raw(&command.replace("TAG:", tag))))
        };
        each(breaks);
        assert!(engine.claim(&claim(20), at(1)).await.is_err());
        engine.close().await;
        each(mends);
        let next = server(&store).await;
        assert_eq!(
            next.claim(&claim(40), at(2)).await.unwrap().len(),
            40,
            "{breaks}"
        );
    }
    check("ACL SETUSER default -zadd", "ACL SETUSER default +zadd").await;
    check("SET TAG:tm foreign", "DEL TAG:tm").await;
}
