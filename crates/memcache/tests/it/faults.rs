//! Servers that are gone, silent or lie.

use std::time::{Duration, Instant};

use tidegate_memcache::CounterRead::{Count, Missing, Unknown};
use tidegate_memcache::test_util::MemcachedServer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::peer::{PATIENCE, add, charge, client, patient, peer, read, refund, says, until};

const SHORT: Duration = Duration::from_millis(100);

#[tokio::test]
async fn a_dead_server_costs_its_own_keys_only_and_is_found_when_it_is_back() {
    let mut servers: Vec<_> = (0..3).map(|_| MemcachedServer::start()).collect();
    let addresses: Vec<_> = servers.iter().map(MemcachedServer::address).collect();
    let client = patient(&addresses);
    let keys: Vec<String> = (0..30).map(|key| format!("key-{key}")).collect();
    for key in &keys {
        add(&client, key, 1).await;
    }
    client.flush().await;
    let of_first: Vec<bool> = keys
        .iter()
        .map(|key| servers[0].value(key).is_some())
        .collect();
    assert!(of_first.contains(&true) && of_first.contains(&false));

    servers[0].kill();
    let found = client.read(&keys, Instant::now() + PATIENCE).await;
    for (found, of_first) in found.iter().zip(&of_first) {
        assert_eq!(*found, if *of_first { Unknown } else { Count(1) });
    }
    assert!(client.stats().failed_reads == 1);

    servers[0].restart();
    until("the server is used again", async || {
        !client
            .read(&keys, Instant::now() + PATIENCE)
            .await
            .contains(&Unknown)
    })
    .await;
    for (key, of_first) in keys.iter().zip(&of_first) {
        assert_eq!(
            add(&client, key, 1).await,
            if *of_first { Missing } else { Count(1) },
            "it came back empty"
        );
    }
}

#[tokio::test]
async fn a_silent_server_is_waited_for_once_and_then_refused_at_once() {
    let server = MemcachedServer::start();
    let client = client(&[server.address()], SHORT);
    add(&client, "a", 1).await;
    client.flush().await;
    server.pause();
    assert_eq!(add(&client, "a", 1).await, Unknown);
    until("the server is given up", async || {
        client.stats().closed == 1
    })
    .await;
    // A thousand calls would take 100 s if each waited.
    let asked = Instant::now();
    for _ in 0..1_000 {
        assert_eq!(add(&client, "a", 1).await, Unknown);
    }
    assert!(asked.elapsed() < PATIENCE, "{:?}", asked.elapsed());
    assert!(client.stats().dropped_changes >= 1_000);
    server.resume();
    until("the server is used again", async || {
        read(&client, &["b"]).await == [Missing]
    })
    .await;
}

#[tokio::test]
async fn many_callers_of_a_dead_server_cost_few_attempts() {
    let mut server = MemcachedServer::start();
    server.kill();
    let client = patient(&[server.address()]);
    for _ in 0..2_000 {
        assert_eq!(read(&client, &["a"]).await, [Unknown]);
    }
    assert!(client.stats().connect_failures < 50, "{:?}", client.stats());
}

#[tokio::test]
async fn garbage_is_no_answer_and_ends_the_connection() {
    let endless: &[u8] = &[b'x'; 4096];
    for text in [
        &b"ERROR\r\n"[..],
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"VALUE a 0 1\r\n17\r\nEND\r\n",
        b"VALUE a 0 99999999999\r\n",
        b"VALUE a 0 -1\r\n",
        b"VALUE other 0 1\r\n7\r\nEND\r\n",
        b"STORED\r\n",
        b"12345\r\n",
        b"\0\0\0\0\r\n",
        endless,
    ] {
        let client = patient(&[says(text).await]);
        assert_eq!(
            read(&client, &["a"]).await,
            [Unknown],
            "{:?}",
            String::from_utf8_lossy(text)
        );
        until("the connection is closed", async || {
            client.stats().closed >= 1
        })
        .await;
        assert_eq!(client.stats().waiting_bytes, 0);
    }
}

#[tokio::test]
async fn replies_that_nobody_asked_for_end_the_connection() {
    let address = says(b"END\r\nEND\r\n").await;
    let client = patient(&[address]);
    assert_eq!(
        read(&client, &["a"]).await,
        [Missing],
        "the first one was due"
    );
    until("the connection is closed", async || {
        client.stats().closed >= 1
    })
    .await;
}

#[tokio::test]
async fn a_server_that_sends_a_value_without_end_is_given_up() {
    let address = peer(|_, mut stream| async move {
        let mut buffer = [0; 4096];
        let _ = stream.read(&mut buffer).await;
        let _ = stream.write_all(b"VALUE a 0 1000000\r\n").await;
        // A byte now and then is no progress.
        while stream.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let client = client(&[address], SHORT);
    assert_eq!(read(&client, &["a"]).await, [Unknown]);
    until("the connection is closed", async || {
        client.stats().closed >= 1
    })
    .await;
}

#[tokio::test]
async fn an_error_of_the_server_is_an_answer() {
    let address = says(b"SERVER_ERROR out of memory\r\n").await;
    let client = patient(&[address]);
    assert_eq!(read(&client, &["a"]).await, [Unknown]);
    client.change(refund("a", 1, Unknown));
    client.flush().await;
    let stats = client.stats();
    assert_eq!(
        (stats.failed_reads, stats.failed_changes, stats.closed),
        (1, 1, 0)
    );
}

#[tokio::test]
async fn what_waits_for_a_slow_server_is_bounded() {
    let address = peer(|_, stream| async move {
        let _held = stream;
        std::future::pending::<()>().await;
    })
    .await;
    let client = patient(&[address]);
    for key in 0..100_000 {
        client.change(charge(&format!("key-{key}"), 1, Missing));
    }
    let stats = client.stats();
    assert!(stats.waiting_bytes <= 4 * 1024 * 1024, "{stats:?}");
    assert!(stats.dropped_changes > 50_000, "{stats:?}");
    assert_eq!(
        read(&client, &["a"]).await,
        [Unknown],
        "a call finds no room and does not wait"
    );
}

#[tokio::test]
async fn a_deadline_is_kept() {
    let address = peer(|_, stream| async move {
        let _held = stream;
        std::future::pending::<()>().await;
    })
    .await;
    let client = patient(&[address]);
    let asked = Instant::now();
    assert_eq!(client.read(&["a"], asked + SHORT).await, [Unknown]);
    assert!(asked.elapsed() >= SHORT && asked.elapsed() < PATIENCE);
}

#[tokio::test]
async fn a_server_that_takes_connections_and_closes_them_is_not_hammered() {
    let address = peer(|_, stream| async move { drop(stream) }).await;
    let client = patient(&[address]);
    for _ in 0..500 {
        assert_eq!(read(&client, &["a"]).await, [Unknown]);
    }
    assert!(
        client.stats().opened + client.stats().connect_failures < 50,
        "{:?}",
        client.stats()
    );
}
