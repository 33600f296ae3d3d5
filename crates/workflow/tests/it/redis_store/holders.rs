//! Places in limits: what they leave in Redis, and what they ask of it.

use std::time::{Duration, Instant};

use tidegate_pipeline::test_util::{RedisCluster, RedisServer};
use tidegate_workflow::{PermitGrant, PermitRequest, Store, StoreError};

use super::open;
use super::replicas::open_waiting;
use crate::contract::holders::lease;
use crate::support::at;

const SERVER: tidegate_workflow::ServerId = tidegate_workflow::ServerId(1);
const LEASE: Duration = Duration::from_secs(60);

async fn hold(
    store: &Store,
    set: &str,
    numbers: std::ops::Range<u32>,
) -> Result<usize, StoreError> {
    let leases: Vec<_> = numbers.map(lease).collect();
    let hold = PermitRequest {
        limit: set,
        permits: 2,
        leases: &leases,
    };
    store
        .acquire_permits(&[hold], SERVER, at(0), LEASE)
        .await
        .remove(0)
        .map(|held| held.granted)
}

fn keys(redis: &RedisServer) -> Vec<String> {
    let reply = redis.raw("KEYS tg:{*}:h*");
    reply
        .lines()
        .filter(|line| line.starts_with("tg:"))
        .map(str::to_owned)
        .collect()
}

#[tokio::test]
async fn a_set_is_gone_with_its_last_holder_or_when_the_last_one_is_over() {
    let (store, redis) = open().await;
    assert_eq!(hold(&store, "a set", 0..3).await, Ok(2));
    let mut found = keys(&redis);
    found.sort();
    assert!(
        found.len() == 2 && found[0].ends_with("}:h:a set") && found[1].ends_with("}:hw:a set"),
        "{found:?}"
    );
    for key in found {
        let left: i64 = redis
            .raw(&format!("PTTL \"{key}\""))
            .trim()
            .trim_start_matches(':')
            .parse()
            .unwrap();
        assert!((50_000..=61_000).contains(&left), "{left}");
    }
    let places = [("a set", lease(0)), ("a set", lease(1))];
    assert_eq!(
        store.release_permits(&places, SERVER, at(0)).await,
        [Ok(0), Ok(0)]
    );
    assert_eq!(keys(&redis), Vec::<String>::new());
}

#[tokio::test]
async fn many_sets_are_one_round_trip() {
    let (store, redis) = open().await;
    assert_eq!(hold(&store, "first", 0..1).await, Ok(1));
    let names: Vec<String> = (0..50).map(|number| format!("set {number}")).collect();
    let leases = [lease(1), lease(2)];
    let holds: Vec<_> = names
        .iter()
        .map(|set| PermitRequest {
            limit: set,
            permits: 2,
            leases: &leases,
        })
        .collect();
    let monitor = redis.monitor();
    assert!(
        store
            .acquire_permits(&holds, SERVER, at(0), LEASE)
            .await
            .iter()
            .all(Result::is_ok)
    );
    let places: Vec<_> = names
        .iter()
        .flat_map(|set| leases.map(|lease| (set.as_str(), lease)))
        .collect();
    assert!(
        store
            .release_permits(&places, SERVER, at(0))
            .await
            .iter()
            .all(Result::is_ok)
    );
    let _ = redis.raw("ECHO end");
    let commands = monitor.commands_until("end");
    let calls = commands
        .iter()
        .filter(|command| command.starts_with("\"EVALSHA\""))
        .count();
    assert_eq!(
        calls,
        2 * names.len(),
        "one call for each set: {commands:?}"
    );
}

#[tokio::test]
async fn a_place_that_no_replica_has_does_not_count() {
    let cluster = RedisCluster::start(3, 1).await;
    let store = open_waiting(cluster.config(), Duration::from_millis(600)).await;
    let names: Vec<String> = (0..20).map(|number| format!("set {number}")).collect();
    let leases = [lease(1), lease(2), lease(3)];
    let holds: Vec<_> = names
        .iter()
        .map(|set| PermitRequest {
            limit: set,
            permits: 2,
            leases: &leases,
        })
        .collect();
    // A replica on a busy machine may be late with its first answer.
    let begin = Instant::now();
    loop {
        let held = store.acquire_permits(&holds, SERVER, at(0), LEASE).await;
        if held
            .iter()
            .all(|held| held.as_ref().is_ok_and(|held| held.granted == 2))
        {
            break;
        }
        assert!(begin.elapsed() < Duration::from_secs(30), "{held:?}");
    }
    cluster.servers()[3..].iter().for_each(RedisServer::pause);
    // A busy machine may be late with the answer that the replicas are.
    let begin = Instant::now();
    loop {
        let held = store.acquire_permits(&holds, SERVER, at(0), LEASE).await;
        let lacks_replicas = |held: &Result<PermitGrant, StoreError>| match held {
            Err(StoreError::Unknown { reason }) => reason.contains("replicas"),
            _ => panic!("{held:?}"),
        };
        if held.iter().all(lacks_replicas) {
            break;
        }
        assert!(begin.elapsed() < Duration::from_secs(30), "{held:?}");
    }
    let places: Vec<_> = names.iter().map(|set| (set.as_str(), leases[0])).collect();
    assert_eq!(
        store.release_permits(&places, SERVER, at(0)).await,
        vec![Ok(1); names.len()],
        "that needs no replica"
    );
}

#[tokio::test]
async fn a_redis_that_was_restarted_learns_the_script_again() {
    let (store, redis) = open().await;
    assert_eq!(hold(&store, "a", 0..1).await, Ok(1));
    let _ = redis.raw("SCRIPT FLUSH");
    assert_eq!(hold(&store, "b", 0..1).await, Ok(1));
    let _ = redis.raw("SCRIPT FLUSH");
    assert_eq!(
        store
            .release_permits(&[("a", lease(0)), ("b", lease(0))], SERVER, at(0))
            .await,
        [Ok(0), Ok(0)]
    );
}

#[tokio::test]
async fn without_time_the_clock_of_the_server_counts() {
    let (store, redis) = open().await;
    assert_eq!(redis.raw("ACL SETUSER default -time -script"), "+OK\r\n");
    assert_eq!(hold(&store, "a", 0..3).await, Ok(2));
    let first = store
        .permit_holders(&["a"], at(0), 9)
        .await
        .remove(0)
        .unwrap()
        .first;
    assert_eq!(
        first.iter().map(|(_, until)| *until).collect::<Vec<_>>(),
        [at(61); 2]
    );
    let late = [lease(5), lease(6)];
    let hold = PermitRequest {
        limit: "a",
        permits: 2,
        leases: &late,
    };
    assert_eq!(
        store.acquire_permits(&[hold], SERVER, at(61), LEASE).await[0]
            .clone()
            .unwrap()
            .granted,
        2
    );
}

#[tokio::test]
async fn what_redis_does_not_do_is_told() {
    let (store, redis) = open().await;
    assert_eq!(
        redis.raw("ACL SETUSER default -zremrangebyscore"),
        "+OK\r\n"
    );
    let refused = hold(&store, "a", 0..1).await.unwrap_err().to_string();
    assert!(refused.contains("ZREMRANGEBYSCORE and ZSCORE"), "{refused}");
    assert_eq!(
        redis.raw("ACL SETUSER default +zremrangebyscore"),
        "+OK\r\n"
    );
    let _ = redis.raw("CONFIG SET maxmemory 1");
    assert_eq!(
        hold(&store, "a", 0..3).await,
        Ok(2),
        "a full redis stops no script half way"
    );
    assert_eq!(
        store
            .release_permits(&[("a", lease(0))], SERVER, at(0))
            .await,
        [Ok(1)]
    );
}
