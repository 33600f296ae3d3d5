//! When another connection opens, and who gets it.

use std::num::NonZero;
use std::time::{Duration, Instant};

use tidegate_pipeline::{Arg, Client, ConnectPace, NotSent, Outcome};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::{JoinHandle, JoinSet};

use super::scripted::{GET_K, expect, greet, listener};
use crate::support::fake::{FakeCluster, Weather};
use crate::support::{eventually, one, send_one, soon};

fn get(client: &Client) -> JoinHandle<Outcome> {
    let client = client.clone();
    tokio::spawn(async move { send_one(&client, "GET", &[Arg::Key(b"k")]).await })
}

/// Answers one GET.
async fn answer(stream: &mut TcpStream) {
    expect(stream, GET_K).await;
    stream.write_all(b"$-1\r\n").await.unwrap();
}

#[tokio::test]
async fn a_queue_opens_connections_however_fast_each_reply_is() {
    let cluster = FakeCluster::start(1, 7).await;
    // Faster than the delay from which a connection is worth its price; what waits behind 64 others is not.
    cluster.set_weather(Weather {
        pause: Duration::from_millis(1),
        ..Weather::default()
    });
    let mut config = cluster.single();
    config.in_flight_commands = 1;
    let client = Client::new(config).unwrap();
    let mut tasks = JoinSet::new();
    for _ in 0..64 {
        let client = client.clone();
        tasks.spawn(async move {
            while client.stats().connections < 4 {
                client
                    .send(one("ECHO", &[Arg::Bytes(b"k")]), soon())
                    .await
                    .remove(0)
                    .reply()
                    .unwrap();
            }
        });
    }
    tokio::time::timeout(Duration::from_secs(5), tasks.join_all())
        .await
        .expect("all connections are opened");
}

#[tokio::test]
async fn a_spike_opens_what_it_fills_and_no_more() {
    let cluster = FakeCluster::start(1, 7).await;
    cluster.set_weather(Weather {
        pause: Duration::from_millis(12),
        ..Weather::default()
    });
    let mut config = cluster.single();
    config.in_flight_commands = 300;
    config.max_connections = 1_024;
    let client = Client::new(config).unwrap();
    let mut tasks = JoinSet::new();
    for _ in 0..1_024 {
        let client = client.clone();
        tasks.spawn(async move {
            for _ in 0..10 {
                client
                    .send(one("ECHO", &[Arg::Bytes(b"k")]), soon())
                    .await
                    .remove(0)
                    .reply()
                    .unwrap();
            }
        });
    }
    tasks.join_all().await;
    let opened = client.stats().opened;
    assert!(
        (2..=4).contains(&opened),
        "{opened} connections for 1,024 callers, 300 each"
    );
}

static LARGE: [u8; 100 * 1024] = [b'x'; 100 * 1024];

fn set_large(client: &Client) -> JoinHandle<Outcome> {
    let client = client.clone();
    tokio::spawn(
        async move { send_one(&client, "SET", &[Arg::Key(b"k"), Arg::Bytes(&LARGE)]).await },
    )
}

async fn expect_large(stream: &mut TcpStream) {
    let header = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${}\r\n", LARGE.len());
    expect(
        stream,
        &format!("{header}{}\r\n", String::from_utf8_lossy(&LARGE)),
    )
    .await;
}

#[tokio::test]
async fn large_values_get_a_connection_of_their_own_while_others_are_busy() {
    let (listener, mut config) = listener().await;
    config.max_connections = 2;
    let client = Client::new(config).unwrap();
    let mut callers = vec![get(&client)];
    let mut first = greet(&listener).await;
    expect(&mut first, GET_K).await;
    // There is one connection, so it goes there, and another one opens.
    callers.push(set_large(&client));
    expect_large(&mut first).await;
    let mut second = greet(&listener).await;
    eventually("the second connection serves", async || {
        client.stats().connections == 2
    })
    .await;

    callers.push(set_large(&client));
    expect_large(&mut second).await;
    for _ in 0..3 {
        callers.push(get(&client));
        expect(&mut first, GET_K).await;
    }
    callers.push(set_large(&client));
    expect_large(&mut second).await;
    first
        .write_all(b"$-1\r\n+OK\r\n$-1\r\n$-1\r\n$-1\r\n")
        .await
        .unwrap();

    // When the one for small values is gone, the other one takes them.
    let lost = get(&client);
    expect(&mut first, GET_K).await;
    drop(first);
    lost.await.unwrap().reply().unwrap_err();
    second.write_all(b"+OK\r\n+OK\r\n").await.unwrap();
    callers.push(get(&client));
    answer(&mut second).await;
    for caller in callers {
        caller.await.unwrap().reply().unwrap();
    }
}

#[tokio::test]
async fn a_large_value_moves_on_when_the_connection_kept_for_it_breaks() {
    let (listener, mut config) = listener().await;
    config.in_flight_bytes = LARGE.len() * 3 / 2;
    config.max_connections = 2;
    let client = Client::new(config).unwrap();
    let small = get(&client);
    let mut first = greet(&listener).await;
    expect(&mut first, GET_K).await;
    let shared = set_large(&client);
    expect_large(&mut first).await;
    let mut second = greet(&listener).await;
    eventually("the second connection serves", async || {
        client.stats().connections == 2
    })
    .await;
    first.write_all(b"$-1\r\n+OK\r\n").await.unwrap();
    small.await.unwrap().reply().unwrap();
    shared.await.unwrap().reply().unwrap();

    let sent = set_large(&client);
    expect_large(&mut second).await;
    let waiting = set_large(&client);
    eventually(
        "it waits, although the first connection is idle",
        async || client.stats().waiting == 1,
    )
    .await;
    drop(second);
    sent.await.unwrap().reply().unwrap_err();
    expect_large(&mut first).await;
    first.write_all(b"+OK\r\n").await.unwrap();
    waiting.await.unwrap().reply().unwrap();
}

#[tokio::test]
async fn clients_of_one_configuration_share_its_pace() {
    let (listener, mut config) = listener().await;
    config.connect_pace = ConnectPace::new(NonZero::<u32>::MIN, NonZero::<u32>::MIN);
    let (one_client, other) = (
        Client::new(config.clone()).unwrap(),
        Client::new(config).unwrap(),
    );
    let caller = get(&one_client);
    let mut stream = greet(&listener).await;
    answer(&mut stream).await;
    caller.await.unwrap().reply().unwrap();

    // The next turn is a second later.
    let outcome = other
        .send(
            one("GET", &[Arg::Key(b"k")]),
            Instant::now() + Duration::from_millis(100),
        )
        .await
        .remove(0);
    assert!(
        matches!(outcome, Outcome::NotSent(NotSent::DeadlineExceeded { .. })),
        "{outcome:?}"
    );
    let caller = get(&other);
    let mut stream = greet(&listener).await;
    answer(&mut stream).await;
    caller.await.unwrap().reply().unwrap();
}
