//! Stores that refuse writes, are full, or have lost a part of themselves: what works goes on, and little is asked of what does not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use tidegate_pipeline::test_util::{RedisCluster, RedisServer};
use tidegate_pipeline::{Client, Config};
use tidegate_workflow::{
    Action, Begin, Call, Definition, Engine, EngineError, Fault, Filter, Partition, Query,
    RedisOptions, RedisStore, Retention, SimulatedStore, Store, StoreError, WorkflowId,
};

use crate::support::{
    at, claim, create, create_of, definition, names, redis, server, simulated, sqlite, succeed,
    take,
};

/// Workflows whose only job is leased, so that a sweep after the lease has something to write.
async fn leased(engine: &Engine, number: usize) {
    for _ in 0..number {
        create(engine, "a", Begin::Now).await;
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
    let (refused, number) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU32::new(0)),
    );
    let writes = Writes {
        refused: Arc::clone(&refused),
        number: Arc::clone(&number),
    };
    simulated.inject(move |call| {
        if call == Call::Read {
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
    let unserved = engine.take_unserved().expect("they were due");
    assert_eq!(unserved.attempts, 400);
    assert!(
        matches!(
            unserved.error,
            EngineError::Store(StoreError::Unavailable { .. })
        ),
        "{unserved:?}"
    );
    let troubles = engine.troubles();
    assert_eq!(troubles.len(), 4);
    assert!(
        troubles
            .values()
            .all(|trouble| trouble.writes.is_some() && trouble.reads.is_none()),
        "{troubles:?}"
    );
    // A probe that is refused changes nothing.
    probe_all(&engine).await;
    assert_eq!(engine.troubles().len(), 4);
    // One that is not lets a sweep try one workflow of each partition, then more and more.
    writes.refused.store(false, Relaxed);
    probe_all(&engine).await;
    assert!(engine.troubles().is_empty());
    assert_eq!(engine.sweep_working(at(200)).await, Ok(true));
    let served = take(&engine, 201).await.len();
    assert_eq!(served, 4, "a partition has to prove itself");
    for _ in 0..10 {
        engine.sweep_working(at(202)).await.unwrap();
    }
    assert_eq!(take(&engine, 203).await.len(), 396);
    assert_eq!(engine.take_unserved(), None);
}

/// A job that was ready again looked like a stale row. With a store that refused to write it anew, its workflow was passed over for a minute, also
/// when its leases ended.
#[tokio::test]
async fn what_looked_stale_while_nothing_could_be_written_is_served_when_the_store_works() {
    let (store, ()) = simulated().await;
    let (engine, other) = (server(&store).await, server(&store).await);
    let id = create(&engine, "a b", Begin::Now).await;
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
    let troubles = engine.troubles();
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
    create(&engine, "a", Begin::Later).await;
    let writes = refusing(&store);
    writes.refused.store(true, Relaxed);
    for _ in 0..200 {
        let refused = engine
            .create(
                vec![crate::support::new(definition("a"), Begin::Later)],
                at(0),
            )
            .await
            .remove(0);
        assert!(matches!(refused, Err(EngineError::Store(_))), "{refused:?}");
    }
    assert_eq!(engine.troubles().len(), 4);
    writes.refused.store(false, Relaxed);
    for key in 0..200 {
        // A key leads also to where it failed.
        let definition = Definition {
            idempotency_key: Some(key.to_string()),
            ..definition("a")
        };
        create_of(&engine, definition, Begin::Later).await;
    }
    assert!(engine.troubles().is_empty());
}

/// Ends a workflow that is kept for a minute.
async fn ended(engine: &Engine) -> WorkflowId {
    let retention = Some(Retention::For(Duration::from_secs(60)));
    let definition = Definition {
        retention,
        ..definition("a")
    };
    let id = create_of(engine, definition, Begin::Now).await;
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
    let troubles = engine.troubles();
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
    assert!(engine.troubles().is_empty());
    while engine.sweep_working(at(3_601)).await.unwrap() {}
    assert_eq!(take(&engine, 3_602).await.len(), 40);
}

#[tokio::test]
async fn a_probe_says_what_redis_refuses() {
    async fn check(refusing: &str, [reads, removals, writes]: [bool; 3]) {
        let (store, server) = redis().await;
        let before = server.raw("DBSIZE");
        let probe = store.probe(Partition(1)).await;
        assert_eq!(
            (probe.reads, probe.removals, probe.writes),
            (Ok(()), Ok(()), Ok(()))
        );
        assert!(server.raw(refusing).starts_with("+OK"), "{refusing}");
        let probe = store.probe(Partition(1)).await;
        let found = [
            probe.reads.is_ok(),
            probe.removals.is_ok(),
            probe.writes.is_ok(),
        ];
        assert_eq!(found, [reads, removals, writes], "{refusing}: {probe:?}");
        if let Some(command) = refusing.strip_prefix("ACL SETUSER default -") {
            // What it may not remove, the next one does.
            let _ = server.raw(&format!("ACL SETUSER default +{command}"));
            assert_eq!(store.probe(Partition(1)).await.writes, Ok(()), "{refusing}");
        }
        assert_eq!(server.raw("DBSIZE"), before, "a probe leaves nothing");
    }
    check("CONFIG SET min-replicas-to-write 1", [true, false, false]).await;
    check("CONFIG SET maxmemory 1", [true, true, false]).await;
    check("REPLICAOF 127.0.0.1 1", [true, false, false]).await;
    // What a user of Redis may not do.
    for command in [
        "evalsha", "exists", "hget", "hset", "hdel", "set", "zadd", "persist", "rename", "pexpire",
    ] {
        check(
            &format!("ACL SETUSER default -{command}"),
            [true, true, false],
        )
        .await;
    }
    for command in ["hgetall", "hmget", "zrange", "zlexcount"] {
        check(
            &format!("ACL SETUSER default -{command}"),
            [false, true, true],
        )
        .await;
    }
    check("ACL SETUSER default -get", [false, true, false]).await;
    check("ACL SETUSER default -zrem", [true, false, false]).await;
    check("ACL SETUSER default -unlink", [true, false, false]).await;
}

#[tokio::test]
async fn a_probe_finds_keys_that_are_something_else() {
    for key in ["rq", "ix", "tm", "ex"] {
        let (store, server) = redis().await;
        create(&crate::support::server(&store).await, "a", Begin::Now).await;
        let keys = server.raw("KEYS *:ix");
        let tag = keys
            .lines()
            .find_map(|line| line.strip_suffix("ix"))
            .unwrap();
        let _ = server.raw(&format!("SET {tag}{key} foreign"));
        let mut probes = Vec::new();
        for partition in 0..4 {
            probes.push(store.probe(Partition(partition)).await);
        }
        let failing: Vec<_> = probes
            .iter()
            .filter(|probe| probe.reads.is_err() && probe.writes.is_err())
            .collect();
        assert_eq!(failing.len(), 1, "{key}: {probes:?}");
    }
}

#[tokio::test]
async fn a_script_that_stops_half_way_is_trouble_and_is_not_asked_for_again() {
    let (store, redis) = redis().await;
    let engine = server(&store).await;
    leased(&engine, 400).await;
    assert!(redis.raw("ACL SETUSER default -hset").contains("OK"));
    engine.sweep_working(at(60)).await.unwrap();
    assert_eq!(engine.troubles().len(), 4, "{:?}", engine.troubles());
    let commands = || {
        let stats = redis.raw("INFO stats");
        let line = stats
            .lines()
            .find_map(|line| line.strip_prefix("total_commands_processed:"));
        line.unwrap().trim().parse::<u64>().unwrap()
    };
    let before = commands();
    for turn in 0..100 {
        engine.sweep_working(at(70 + turn)).await.unwrap();
        probe_all(&engine).await;
        assert_eq!(engine.troubles().len(), 4);
    }
    let each = (commands() - before) / 100;
    assert!(each < 150, "{each} commands for 4 probes");
    assert!(redis.raw("ACL SETUSER default +hset").contains("OK"));
    probe_all(&engine).await;
    assert!(engine.troubles().is_empty());
    while engine.sweep_working(at(200)).await.unwrap() {}
    assert_eq!(take(&engine, 201).await.len(), 400);
}

#[tokio::test]
async fn a_probe_that_was_wrong_is_not_believed_for_a_while() {
    let (store, ()) = simulated().await;
    let engine = server(&store).await;
    leased(&engine, 40).await;
    let writes = refusing(&store);
    let mut tried = 0;
    for turn in 0..20 {
        // It answers the question and refuses the work.
        writes.refused.store(false, Relaxed);
        probe_all(&engine).await;
        writes.refused.store(true, Relaxed);
        writes.number.store(0, Relaxed);
        engine.sweep_working(at(60 + turn)).await.unwrap();
        tried += writes.number.load(Relaxed);
    }
    assert!(tried <= 20, "{tried} writes for 4 partitions");
    assert_eq!(engine.troubles().len(), 4);
}

#[tokio::test]
async fn a_store_that_never_says_yes_is_the_reason_and_not_other_servers() {
    let (store, ()) = simulated().await;
    let engine = server(&store).await;
    create(&engine, "a", Begin::Later).await;
    let Store::Simulated(simulated) = &store else {
        panic!("a simulated store")
    };
    simulated.inject(|call| {
        if call == Call::Write {
            Fault::RequestLost
        } else {
            Fault::None
        }
    });
    let refused = engine
        .create(
            vec![crate::support::new(definition("a"), Begin::Later)],
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
        create(&engine, "a b c", Begin::Now).await;
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
        create(&engine, "a b<a", Begin::Now).await;
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
    create(&next, "new", Begin::Now).await;
    let mut names = Vec::new();
    for _ in 0..60 {
        let claimed = next.claim(&claim(1), at(5)).await.unwrap();
        names.extend(
            crate::support::names(&claimed)
                .into_iter()
                .map(str::to_owned),
        );
        let _ = next.look_around().await;
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
            create(&engine, "a", Begin::Now).await;
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

#[tokio::test]
async fn a_probe_of_a_file_finds_it_writable_and_leaves_nothing() {
    let (store, _directory) = sqlite().await;
    let probe = store.probe(Partition(1)).await;
    assert_eq!(
        (probe.reads, probe.removals, probe.writes),
        (Ok(()), Ok(()), Ok(()))
    );
    assert_eq!(
        store.register(tidegate_workflow::Register::Queues).await,
        Ok(Vec::new())
    );
    assert_eq!(
        store.register(tidegate_workflow::Register::Names).await,
        Ok(Vec::new())
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_living_nodes_of_a_cluster_have_is_served_and_the_rest_is_named() {
    const PARTITIONS: u16 = 16;
    let mut cluster = RedisCluster::start(3, 0).await;
    for server in cluster.servers() {
        assert_eq!(
            server.raw("CONFIG SET cluster-require-full-coverage no"),
            "+OK\r\n"
        );
    }
    let options = RedisOptions::new("test:", PARTITIONS, Duration::from_secs(2)).unwrap();
    let client = Client::new(cluster.config()).unwrap();
    let engine = server(&Store::Redis(
        RedisStore::open(client, options).await.unwrap(),
    ))
    .await;
    for _ in 0..200 {
        create(&engine, "a", Begin::Now).await;
    }
    let all = engine.count(&Filter::default()).await.unwrap();
    assert!(all.missing.is_empty());
    // The names of queues stay, so that the list of queues has something to say.
    let dead = (cluster.owner("test:queues") + 1) % 3;
    cluster.server_mut(dead).kill();
    // The first to ask find out.
    let page = loop {
        let page = engine
            .list(&Query {
                limit: 1_000,
                ..Query::default()
            })
            .await
            .unwrap();
        if !page.missing.is_empty() {
            break page;
        }
    };
    let missing: Vec<Partition> = page.missing.0.keys().copied().collect();
    assert!((4..=7).contains(&missing.len()), "{missing:?}");
    let lives = |id: &WorkflowId| !missing.contains(&id.partition());
    assert!(page.items.len() > 100 && page.items.iter().all(|item| lives(&item.workflow)));
    let count = engine.count(&Filter::default()).await.unwrap();
    assert_eq!(
        count.found.iter().map(|(_, number)| number).sum::<u64>(),
        page.items.len() as u64
    );
    assert_eq!(
        count.missing.0.keys().collect::<Vec<_>>(),
        missing.iter().collect::<Vec<_>>()
    );
    let queues = engine.queue_states().await.unwrap();
    assert_eq!(
        (queues.found[0].ready, queues.missing.0.len()),
        (page.items.len() as u64, missing.len())
    );
    // Creations go where they can, and the jobs there are handed out and reported.
    for _ in 0..30 {
        let id = create(&engine, "a", Begin::Now).await;
        assert!(lives(&id), "{id}");
    }
    let wanted = page.items.len() + 30;
    let mut claimed = Vec::new();
    for _ in 0..20 {
        // Some that are remembered cannot be claimed any more.
        claimed.extend(engine.claim(&claim(1_000), at(1)).await.unwrap_or_default());
        let _ = engine.look_around().await;
    }
    assert_eq!(claimed.len(), wanted);
    for claimed in &claimed {
        succeed(&engine, claimed.lease, 2).await.unwrap();
    }
    assert_eq!(engine.sweep_working(at(3)).await, Ok(false));
    // A key decides the partition. Where that is gone, the answer says so.
    let mut refused = 0;
    for key in 0..30 {
        let definition = Definition {
            idempotency_key: Some(key.to_string()),
            ..definition("a")
        };
        match engine
            .create(vec![crate::support::new(definition, Begin::Now)], at(4))
            .await
            .remove(0)
        {
            Ok(created) => assert!(lives(&created.workflow)),
            Err(error) => {
                assert!(matches!(error, EngineError::Store(_)), "{error}");
                refused += 1;
            }
        }
    }
    assert!((1..30).contains(&refused), "{refused} of 30");
}

/// A cluster in which one node has the facts and the registers, that node, and how to open the store.
async fn cluster_with_registers_in_one_place() -> (RedisCluster, usize, RedisOptions) {
    let cluster = RedisCluster::start(3, 0).await;
    for server in cluster.servers() {
        assert_eq!(
            server.raw("CONFIG SET cluster-require-full-coverage no"),
            "+OK\r\n"
        );
    }
    let owners = |prefix: &String| {
        ["meta", "queues", "names"].map(|key| cluster.owner(&format!("{prefix}{key}")))
    };
    let mut prefixes = (0..).map(|number| format!("t{number}:"));
    let prefix = prefixes
        .find(|prefix| owners(prefix).windows(2).all(|pair| pair[0] == pair[1]))
        .unwrap();
    let own = owners(&prefix)[0];
    (
        cluster,
        own,
        RedisOptions::new(prefix, 16, Duration::from_secs(2)).unwrap(),
    )
}

async fn server_on(cluster: &RedisCluster, options: &RedisOptions) -> Engine {
    let all = Config::cluster(cluster.servers().iter().map(RedisServer::address).collect());
    let opened = RedisStore::open(Client::new(all).unwrap(), options.clone()).await;
    server(&Store::Redis(
        opened.expect("facts and registers are there"),
    ))
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_starts_beside_a_dead_node() {
    let (mut cluster, own, options) = cluster_with_registers_in_one_place().await;
    create(&server_on(&cluster, &options).await, "a", Begin::Now).await;
    cluster.server_mut((own + 1) % 3).kill();
    let next = server_on(&cluster, &options).await;
    let _ = next.sweep_working(at(0)).await;
    for _ in 0..20 {
        create(&next, "a", Begin::Now).await;
    }
    assert!(!next.queue_states().await.unwrap().missing.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queues_are_listed_without_the_node_with_registers() {
    let (mut cluster, own, options) = cluster_with_registers_in_one_place().await;
    let engine = server_on(&cluster, &options).await;
    create(&engine, "a", Begin::Now).await;
    cluster.server_mut(own).kill();
    let _ = engine.sweep_working(at(0)).await;
    probe_all(&engine).await;
    for _ in 0..20 {
        create(&engine, "a", Begin::Now).await;
    }
    let queues = engine.queue_states().await.unwrap();
    assert!(!queues.found.is_empty() && !queues.missing.is_empty());
}
