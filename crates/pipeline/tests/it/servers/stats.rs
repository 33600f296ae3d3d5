//! What a client counts.

use std::time::{Duration, Instant};

use tidegate_pipeline::test_util::{RedisCluster, RedisServer};
use tidegate_pipeline::{Arg, Batch, Client, NotSent, Outcome, Stats, Unknown};

use super::cluster::move_slot;
use crate::support::{eventually, one, send_one, soon};

/// What callers were told: replies, errors of the server, not sent, rejected, unknown.
fn told(stats: &Stats) -> [u64; 5] {
    [
        stats.ended_with_reply,
        stats.ended_with_server_error,
        stats.ended_not_sent,
        stats.ended_rejected,
        stats.ended_unknown,
    ]
}

#[tokio::test]
async fn every_command_counts_under_what_its_caller_was_told() {
    let server = RedisServer::start().await;
    let mut config = server.config();
    (
        config.queue_commands,
        config.in_flight_commands,
        config.max_connections,
    ) = (1, 1, 1);
    let client = Client::new(config).unwrap();
    send_one(&client, "SET", &[Arg::Key(b"k"), Arg::Bytes(b"v")])
        .await
        .reply()
        .unwrap();
    let mut batch = Batch::new();
    batch
        .unit()
        .command("GET", &[Arg::Key(b"k")])
        .command("INCR", &[Arg::Key(b"k")]);
    client.send(batch, soon()).await;
    send_one(&client, "MONITOR", &[]).await.reply().unwrap_err();
    assert_eq!(told(&client.stats()), [2, 1, 1, 0, 0]);

    server.pause();
    let at = |millis| Instant::now() + Duration::from_millis(millis);
    let ping = || one("PING", &[]);
    // One is written, one waits, and there is no room for a third.
    let (written, waits) = (client.clone(), client.clone());
    let written = tokio::spawn(async move { written.send(ping(), at(400)).await });
    eventually("one is written", async || {
        client.stats().oldest_pending > Duration::ZERO
    })
    .await;
    let waits = tokio::spawn(async move { waits.send(ping(), at(400)).await });
    eventually("one waits", async || client.stats().waiting == 1).await;
    let refused = client.send(ping(), at(400)).await;
    assert!(
        matches!(&refused[..], [Outcome::NotSent(NotSent::Overloaded { .. })]),
        "{refused:?}"
    );
    assert_eq!(client.stats().overloads, 1);
    assert!(matches!(
        &written.await.unwrap()[..],
        [Outcome::Unknown(Unknown::DeadlineExceeded { .. })]
    ));
    assert!(
        client.stats().oldest_pending >= Duration::from_millis(300),
        "{:?}",
        client.stats().oldest_pending
    );
    waits.await.unwrap();
    server.resume();
    eventually("nothing is owed", async || {
        client.stats().oldest_pending.is_zero()
    })
    .await;
    assert_eq!(told(&client.stats()), [2, 1, 3, 0, 1]);
}

#[tokio::test]
async fn redirects_and_what_is_sent_again_count() {
    let cluster = RedisCluster::start(3, 0).await;
    let client = Client::new(cluster.config()).unwrap();
    send_one(&client, "GET", &[Arg::Key(b"{t}1")])
        .await
        .reply()
        .unwrap();
    let (owner, slot) = (
        cluster.owner("{t}1"),
        cluster.servers()[0].raw("CLUSTER KEYSLOT {t}1"),
    );
    let (slot, next) = (slot.trim_start_matches(':').trim(), (owner + 1) % 3);
    let mut before = client.stats();
    let mut check = async |moved: u64, ask: u64, retries: u64| {
        let mut batch = Batch::new();
        let key = Arg::Key(b"{t}1");
        batch
            .unit()
            .command("INCRBY", &[key, Arg::Integer(1)])
            .repeatable("EXPIRE", &[key, Arg::Integer(60)]);
        assert!(
            client
                .send(batch, soon())
                .await
                .iter()
                .all(|outcome| outcome.reply().is_ok())
        );
        let after = client.stats();
        let more = (
            after.moved - before.moved,
            after.ask - before.ask,
            after.retries - before.retries,
        );
        assert_eq!(more, (moved, ask, retries));
        assert_eq!(
            after.ended_with_reply - before.ended_with_reply,
            2,
            "however often they were sent"
        );
        before = after;
    };
    check(0, 0, 0).await;
    assert_eq!(cluster.servers()[owner].raw("DEL {t}1"), ":1\r\n");
    let (from, to) = (cluster.id(owner), cluster.id(next));
    assert_eq!(
        cluster.servers()[next].raw(&format!("CLUSTER SETSLOT {slot} IMPORTING {from}")),
        "+OK\r\n"
    );
    assert_eq!(
        cluster.servers()[owner].raw(&format!("CLUSTER SETSLOT {slot} MIGRATING {to}")),
        "+OK\r\n"
    );
    check(0, 1, 2).await;
    move_slot(&cluster, "{t}1", owner, next);
    check(1, 0, 2).await;
    check(0, 0, 0).await;
}
