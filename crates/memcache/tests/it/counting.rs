//! Counters on real servers.

use std::time::{Duration, Instant};

use tidegate_memcache::CounterRead::{Count, Foreign, Missing};
use tidegate_memcache::test_util::MemcachedServer;
use tidegate_memcache::{Charge, Client, Config, Expiry, Servers};

use crate::peer::{PATIENCE, add, charge, patient, read, refund, until};

#[tokio::test]
async fn what_a_client_adds_it_reads_at_once() {
    let server = MemcachedServer::start();
    let client = patient(&[server.address()]);
    for expected in [Missing, Count(3), Count(6), Count(9)] {
        assert_eq!(add(&client, "a", 3).await, expected);
    }
    client.flush().await;
    assert_eq!(server.value("a").as_deref(), Some("12"));
    let stats = client.stats();
    assert_eq!(
        (stats.opened, stats.waiting_bytes),
        (1, 0),
        "all share one connection"
    );
    assert_eq!(
        (
            stats.reads,
            stats.keys_requested,
            stats.keys_found,
            stats.adds,
            stats.changes
        ),
        (4, 4, 3, 1, 4)
    );
}

#[tokio::test]
async fn several_clients_lose_no_hit() {
    let server = MemcachedServer::start();
    let clients: Vec<Client> = (0..8).map(|_| patient(&[server.address()])).collect();
    let mut tasks = tokio::task::JoinSet::new();
    for client in &clients {
        for key in 0..5 {
            let (client, key) = (client.clone(), format!("key-{key}"));
            tasks.spawn(async move {
                for _ in 0..50 {
                    add(&client, &key, 2).await;
                }
            });
        }
    }
    tasks.join_all().await;
    for client in &clients {
        client.flush().await;
        assert_eq!(client.stats().failed_changes, 0);
    }
    for key in 0..5 {
        assert_eq!(
            server.value(&format!("key-{key}")).as_deref(),
            Some("800"),
            "all made the counter at once"
        );
    }
}

#[tokio::test]
async fn refunds_stop_at_zero() {
    let server = MemcachedServer::start();
    let client = patient(&[server.address()]);
    add(&client, "a", 10).await;
    for (hits, left) in [(1, 9), (4, 5), (u64::MAX, 0), (1, 0)] {
        let found = read(&client, &["a"]).await[0];
        client.change(refund("a", hits, found));
        // memcached leaves spaces behind a counter that got shorter.
        assert_eq!(read(&client, &["a"]).await, [Count(left)]);
    }
    client.change(refund("b", 1, Missing));
    assert_eq!(
        add(&client, "b", 1).await,
        Missing,
        "a refund makes no counter"
    );
    assert_eq!(read(&client, &["b"]).await, [Count(1)]);
}

#[tokio::test]
async fn values_of_others_are_told_apart() {
    let server = MemcachedServer::start();
    let client = patient(&[server.address()]);
    for (key, value, expected) in [
        ("large", "9223372036854775808", Count(1 << 63)),
        ("largest", "18446744073709551615", Count(u64::MAX)),
        ("text", "hello", Foreign),
        ("negative", "-1", Foreign),
        ("empty", "", Foreign),
        ("long", &"x".repeat(100_000), Foreign),
    ] {
        server.set(key, value);
        assert_eq!(
            read(&client, &["none", key, "none"]).await,
            [Missing, expected, Missing],
            "{key}"
        );
    }
    assert_eq!(add(&client, "text", 1).await, Foreign);
    client.flush().await;
    assert_eq!(
        (client.stats().failed_changes, client.stats().foreign_values),
        (1, 5)
    );
    assert_eq!(
        add(&client, "a", 1).await,
        Missing,
        "the connection goes on"
    );
    assert_eq!(client.stats().opened, 1);
}

#[tokio::test]
async fn a_counter_that_is_evicted_meanwhile_is_charged_all_the_same() {
    let server = MemcachedServer::start();
    let client = patient(&[server.address()]);
    client.change(charge("a", 3, Count(7)));
    client.flush().await;
    assert_eq!(server.value("a").as_deref(), Some("3"));
    assert_eq!(client.stats().missed_changes, 1);
}

#[tokio::test]
async fn a_counter_expires_when_it_should_also_after_more_than_thirty_days() {
    let server = MemcachedServer::start();
    let client = patient(&[server.address()]);
    let now = || {
        std::time::SystemTime::UNIX_EPOCH
            .elapsed()
            .unwrap()
            .as_secs()
    };
    for (key, seconds) in [("month", 2_592_300), ("year", 31_536_000), ("minute", 60)] {
        client.change(Charge {
            expiry: Expiry::after(seconds, now()),
            ..charge(key, 1, Missing)
        });
        // An increment keeps the time.
        assert_eq!(add(&client, key, 1).await, Count(1), "{key} counts");
        client.flush().await;
        let keys = server.keys();
        let expiry = keys.iter().find(|(name, _)| name == key).unwrap().1;
        let expected = i64::try_from(now() + seconds).unwrap();
        assert!(
            (expected - 60..=expected + 5).contains(&expiry),
            "{key}: {expiry} is not {expected}"
        );
    }
}

#[tokio::test]
async fn many_keys_are_read_at_once_from_all_servers() {
    let servers: Vec<_> = (0..3).map(|_| MemcachedServer::start()).collect();
    let addresses: Vec<_> = servers.iter().map(MemcachedServer::address).collect();
    let client = patient(&addresses);
    let keys: Vec<String> = (0..1_000)
        .map(|key| format!("domain_key_{key}_1234"))
        .collect();
    for (hits, key) in keys.iter().enumerate().filter(|(hits, _)| hits % 3 > 0) {
        client.change(charge(key, hits as u64, Missing));
    }
    let found = client.read(&keys, Instant::now() + PATIENCE).await;
    for (hits, found) in found.iter().enumerate() {
        assert_eq!(
            *found,
            if hits % 3 > 0 {
                Count(hits as u64)
            } else {
                Missing
            }
        );
    }
    // Where Go's client looks for it: its CRC-32 is 0xb5ea4ec5, which is 0 modulo 3.
    client.change(charge("domain_key_value_1234", 1, Missing));
    client.flush().await;
    let has: Vec<bool> = servers
        .iter()
        .map(|server| server.value("domain_key_value_1234").is_some())
        .collect();
    assert_eq!(has, [true, false, false]);
}

#[tokio::test]
async fn a_changed_list_of_servers_moves_keys_and_keeps_connections() {
    let servers: Vec<_> = (0..3).map(|_| MemcachedServer::start()).collect();
    let addresses: Vec<_> = servers.iter().map(MemcachedServer::address).collect();
    let list = Servers::new(addresses[..2].to_vec());
    let mut config = Config::default();
    config.timeout = PATIENCE;
    let client = Client::new(config, list.clone());
    let keys: Vec<String> = (0..50).map(|key| format!("key-{key}")).collect();
    for key in &keys {
        add(&client, key, 1).await;
    }
    assert!(
        !list.replace(addresses[..2].to_vec()),
        "the same list is no change"
    );
    assert!(list.replace(vec![addresses[1].clone(), addresses[2].clone()]));
    for key in &keys {
        add(&client, key, 1).await;
    }
    client.flush().await;
    let stats = client.stats();
    assert_eq!(
        (stats.opened, stats.failed_reads, stats.failed_changes),
        (3, 0, 0)
    );
    until("the connection to the server that left ends", async || {
        client.stats().closed == 1
    })
    .await;
    assert_eq!(
        client.read(&keys, Instant::now() + PATIENCE).await.len(),
        50
    );
}

#[tokio::test]
async fn an_idle_client_that_is_dropped_does_what_waits() {
    let server = MemcachedServer::start();
    let client = patient(&[server.address()]);
    for _ in 0..1_000 {
        client.change(charge("a", 1, Missing));
    }
    drop(client);
    until("all charges are made", async || {
        server.value("a").as_deref() == Some("1000")
    })
    .await;
}

#[tokio::test]
async fn a_connection_that_the_server_closed_when_idle_is_opened_again_when_it_is_needed() {
    let server = MemcachedServer::start_with(&["-o", "idle_timeout=1"]);
    let client = patient(&[server.address()]);
    add(&client, "a", 1).await;
    until("the server closes the connection", async || {
        client.stats().closed == 1
    })
    .await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(client.stats().opened, 1, "nobody needs one");
    assert_eq!(add(&client, "a", 1).await, Count(1));
    assert_eq!((client.stats().opened, client.stats().failed_reads), (2, 0));
}
