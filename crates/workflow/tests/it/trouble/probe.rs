//! What a probe of a partition says.

use super::*;

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
        create(&crate::support::server(&store).await, "a", StartMode::Now).await;
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
    assert_eq!(engine.store_failures().len(), 4);
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
