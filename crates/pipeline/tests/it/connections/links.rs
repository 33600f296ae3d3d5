//! The link to a real server is cut, freezes, trickles; the server loads or runs out of patience.

use std::time::Duration;

use tidegate_pipeline::test_util::RedisServer;
use tidegate_pipeline::{Arg, Batch, Client, Outcome, Unknown};

use crate::support::load::{Load, check_books, check_exact, keys_where};
use crate::support::proxy::{Mode, Proxy};
use crate::support::{eventually, send_one, soon};

const GREETING: (usize, usize) = ("*1\r\n$4\r\nPING\r\n".len(), "+PONG\r\n".len());
const INCREMENT: (usize, usize) = (
    "*3\r\n$6\r\nINCRBY\r\n$4\r\nkey1\r\n$1\r\n1\r\n".len(),
    ":1\r\n".len(),
);

/// A counter and its expiry.
const COUNTED: usize =
    "*3\r\n$6\r\nINCRBY\r\n$1\r\na\r\n$1\r\n1\r\n*3\r\n$6\r\nEXPIRE\r\n$1\r\na\r\n$3\r\n600\r\n"
        .len();

fn three_increments() -> Batch {
    let mut batch = Batch::new();
    for key in [b"key1", b"key2", b"key3"] {
        batch
            .unit()
            .command("INCRBY", &[Arg::Key(key), Arg::Integer(1)]);
    }
    batch
}

/// Sends three increments over a connection that is cut, and returns their outcomes and what the server counted.
async fn cut(server: &RedisServer, mode: Mode) -> (Vec<Outcome>, Vec<usize>) {
    assert_eq!(server.raw("FLUSHALL"), "+OK\r\n");
    let proxy = Proxy::start(server.port(), mode).await;
    let mut config = proxy.config();
    config.backoff_min = Duration::from_millis(1);
    let client = Client::new(config).unwrap();
    let outcomes = client.send(three_increments(), soon()).await;
    client.close().await;
    let counted =
        (1..=3).map(|key| usize::from(server.raw(&format!("GET key{key}")).contains("\r\n1\r\n")));
    (outcomes, counted.collect())
}

#[tokio::test]
async fn a_reset_at_any_byte_on_the_way_up_doubles_nothing() {
    let server = RedisServer::start().await;
    for at in 0..=GREETING.0 + 3 * INCREMENT.0 {
        let (outcomes, counted) = cut(&server, Mode::CutUp(at)).await;
        for (command, (outcome, counted)) in outcomes.iter().zip(&counted).enumerate() {
            let arrived = at >= GREETING.0 + (command + 1) * INCREMENT.0;
            match outcome {
                // Sent again on the next connection, or answered just before the cut.
                Outcome::Reply(_) => assert_eq!(*counted, 1, "cut at {at}: {command}"),
                Outcome::NotSent(_) => assert_eq!(*counted, 0, "cut at {at}: {command}"),
                Outcome::Unknown(_) => assert!(*counted == 0 || arrived, "cut at {at}: {command}"),
                other => panic!("cut at {at}: {command}: {other:?}"),
            }
            assert!(
                at >= GREETING.0 || matches!(outcome, Outcome::NotSent(_)),
                "cut at {at} in the greeting: {outcome:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_cut_at_any_byte_on_the_way_down_loses_only_the_replies_behind_it() {
    let server = RedisServer::start().await;
    for at in GREETING.1..GREETING.1 + 3 * INCREMENT.1 {
        let (outcomes, counted) = cut(&server, Mode::CutDown(at)).await;
        assert_eq!(
            counted,
            [1, 1, 1],
            "cut at {at}: all arrived, and none was sent twice"
        );
        let answered = (at - GREETING.1) / INCREMENT.1;
        for (command, outcome) in outcomes.iter().enumerate() {
            match command < answered {
                true => assert_eq!(outcome.integer().unwrap(), 1, "cut at {at}: {command}"),
                false => assert!(
                    matches!(outcome, Outcome::Unknown(Unknown::ConnectionLost { .. })),
                    "cut at {at}: {command}: {outcome:?}"
                ),
            }
        }
    }
}

#[tokio::test]
async fn a_cut_between_a_counter_and_its_expiry_leaves_no_key_for_ever() {
    let server = RedisServer::start().await;
    let keys = ["a", "b", "c"];
    let mut cut_inside = 0;
    for at in GREETING.0..GREETING.0 + 3 * COUNTED {
        assert_eq!(server.raw("FLUSHALL"), "+OK\r\n");
        let proxy = Proxy::start(server.port(), Mode::CutUp(at)).await;
        let mut config = proxy.config();
        config.backoff_min = Duration::from_millis(1);
        let client = Client::new(config).unwrap();
        let mut batch = Batch::new();
        for key in keys.map(|key| Arg::Key(key.as_bytes())) {
            batch
                .unit()
                .command("INCRBY", &[key, Arg::Integer(1)])
                .repeatable("EXPIRE", &[key, Arg::Integer(600)]);
        }
        let outcomes = client.send(batch, soon()).await;
        for (key, unit) in keys.iter().zip(outcomes.chunks(2)) {
            let ttl = server.raw(&format!("TTL {key}"));
            assert_ne!(
                ttl, ":-1\r\n",
                "cut at {at}: {key} stays for ever: {unit:?}"
            );
            let value = server.raw(&format!("GET {key}"));
            assert!(
                ["$-1\r\n", "$1\r\n1\r\n"].contains(&&value[..]),
                "cut at {at}: {key} is {value}"
            );
        }
        cut_inside += usize::from(matches!(
            &outcomes[..2],
            [Outcome::Unknown(_), Outcome::Reply(_)]
        ));
    }
    assert!(
        cut_inside > 0,
        "no expiry was sent by itself: the test shows nothing"
    );
}

#[tokio::test]
async fn a_peer_that_vanished_without_a_word_is_noticed() {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(server.port(), Mode::Forward).await;
    let mut config = proxy.config();
    (config.stall_timeout, config.connect_timeout) =
        (Duration::from_millis(500), Duration::from_millis(300));
    let client = Client::new(config).unwrap();
    send_one(&client, "PING", &[]).await.reply().unwrap();
    proxy.set(Mode::Silent);
    let outcome = send_one(&client, "INCRBY", &[Arg::Key(b"k"), Arg::Integer(1)]).await;
    let stalled = matches!(&outcome, Outcome::Unknown(Unknown::ConnectionLost { reason, .. }) if reason.contains("no reply for"));
    assert!(stalled, "{outcome:?}");
    // The way is still blocked: callers are told so instead of being kept.
    eventually("the node counts as down", async || {
        matches!(send_one(&client, "PING", &[]).await, Outcome::NotSent(_))
    })
    .await;
    proxy.set(Mode::Forward);
    eventually("the client is back", async || {
        send_one(&client, "PING", &[]).await.reply().is_ok()
    })
    .await;
    assert_eq!(client.stats().lost, 1);
    check_books(&client).await;
}

#[tokio::test]
async fn bytes_that_trickle_both_ways_are_put_together() {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(server.port(), Mode::Trickle).await;
    let client = Client::new(proxy.config()).unwrap();
    let value = "x\r\n".repeat(2_000);
    let mut batch = Batch::new();
    batch
        .unit()
        .command("ECHO", &[Arg::Bytes(value.as_bytes())]);
    for index in 0..50 {
        batch
            .unit()
            .command("RPUSH", &[Arg::Key(b"list"), Arg::Integer(index)]);
    }
    batch.unit().command(
        "LRANGE",
        &[Arg::Key(b"list"), Arg::Integer(0), Arg::Integer(-1)],
    );
    let outcomes = client.send(batch, soon()).await;
    assert_eq!(outcomes[0].bytes().unwrap(), Some(value.as_bytes()));
    let lengths: Vec<i64> = outcomes[1..51]
        .iter()
        .map(|outcome| outcome.integer().unwrap())
        .collect();
    assert_eq!(lengths, (1..=50).collect::<Vec<_>>());
    let tidegate_pipeline::Reply::Array(list) = outcomes[51].reply().unwrap() else {
        panic!("{outcomes:?}")
    };
    assert_eq!(list.len(), 50);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_kills_slow_readers_costs_what_was_in_flight_only() {
    let server = RedisServer::start().await;
    assert_eq!(
        server.raw("CONFIG SET client-output-buffer-limit \"normal 1mb 0 0\""),
        "+OK\r\n"
    );
    let client = Client::new(server.config()).unwrap();
    send_one(
        &client,
        "SET",
        &[Arg::Key(b"big"), Arg::Bytes(&vec![b'x'; 300_000])],
    )
    .await
    .reply()
    .unwrap();
    let load = Load::start(&client, &keys_where(8, |_| true), Duration::from_secs(10));
    for _ in 0..5 {
        let mut batch = Batch::new();
        for _ in 0..64 {
            batch.unit().command("GET", &[Arg::Key(b"big")]);
        }
        let outcomes = client.send(batch, soon()).await;
        // Redis answers a pipeline whole before it writes, and ends a client for which too much has gathered.
        let lost = outcomes
            .iter()
            .filter(|outcome| matches!(outcome, Outcome::Unknown(_)))
            .count();
        assert!(lost > 0, "the server did not end the connection");
        assert!(outcomes.iter().all(|outcome| matches!(
            outcome,
            Outcome::Unknown(_) | Outcome::Reply(_) | Outcome::NotSent(_)
        )));
        load.goes_on_for(200).await;
    }
    let tallies = load.stop().await;
    check_exact(&client, &tallies).await;
    check_books(&client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_wait_while_a_server_loads_its_data() {
    // A pause per key and an answer every kilobyte make a small data set load as a large one does.
    let server = RedisServer::start_with(&[
        "--key-load-delay",
        "50",
        "--loading-process-events-interval-bytes",
        "1024",
    ])
    .await;
    assert_eq!(server.raw("DEBUG POPULATE 10000"), "+OK\r\n");
    let client = Client::new(server.config()).unwrap();
    let load = Load::start(&client, &keys_where(8, |_| true), Duration::from_secs(10));
    load.goes_on_for(200).await;
    let server = tokio::task::spawn_blocking(move || {
        assert_eq!(server.raw("DEBUG RELOAD"), "+OK\r\n");
        server
    })
    .await
    .unwrap();
    load.goes_on_for(200).await;
    let tallies = load.stop().await;
    assert!(
        server.raw("INFO errorstats").contains("errorstat_LOADING"),
        "nobody was told to wait: the test shows nothing"
    );
    for tally in &tallies {
        assert_eq!(tally.errors, [], "{}", tally.key);
        assert_eq!(tally.counted(&client).await, tally.acknowledged);
    }
}
