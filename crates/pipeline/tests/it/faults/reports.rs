//! What users of other clients of Redis reported. The numbers are those of their reports; the tests are our own.

use std::time::{Duration, Instant};

use tidegate_pipeline::{Arg, Batch, Client, NotSent, Outcome, Protocol};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

use crate::connections::scripted::{GET_K, expect, greet, listener};
use crate::support::certificates::Certificates;
use crate::support::fake::{FakeCluster, Replies, Weather};
use crate::support::load::check_books;
use crate::support::{eventually, one, send_one, soon};

const PING: &str = "*1\r\n$4\r\nPING\r\n";

const HELLO: &str = "*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n";

fn get(client: &Client) -> tokio::task::JoinHandle<Outcome> {
    let client = client.clone();
    tokio::spawn(async move { send_one(&client, "GET", &[Arg::Key(b"k")]).await })
}

/// go-redis CVE-2025-29923: the greeting timed out, the connection was used all the same, and each caller got the reply to the
/// command before its own.
#[tokio::test]
async fn a_connection_whose_greeting_is_answered_late_is_never_used() {
    let (listener, mut config) = listener().await;
    config.connect_timeout = Duration::from_millis(100);
    let client = Client::new(config).unwrap();
    let refused = get(&client);
    let (mut late, _) = listener.accept().await.unwrap();
    expect(&mut late, PING).await;
    let outcome = refused.await.unwrap();
    assert!(
        matches!(outcome, Outcome::NotSent(NotSent::Unavailable { .. })),
        "{outcome:?}"
    );
    let _ = late.write_all(b"+PONG\r\n$4\r\nlate\r\n").await;
    let mut stream = greet(&listener).await;
    eventually("the next connection is used", async || {
        client.stats().connections == 1
    })
    .await;
    let caller = get(&client);
    expect(&mut stream, GET_K).await;
    stream.write_all(b"$3\r\nown\r\n").await.unwrap();
    assert_eq!(caller.await.unwrap().bytes().unwrap(), Some(&b"own"[..]));
    let mut rest = Vec::new();
    let _ = late.read_to_end(&mut rest).await;
    assert_eq!(
        rest, b"",
        "nothing was written behind a greeting without an answer"
    );
}

/// As above, when the reply too many is there before the first command.
#[tokio::test]
async fn a_server_that_answers_more_than_the_greeting_is_not_used() {
    let (listener, config) = listener().await;
    let client = Client::new(config).unwrap();
    for reply in ["+PONG\r\n+PONG\r\n", "+PONG\r\n:1\r\n", "+PONG\r\n$4\r\nha"] {
        let refused = get(&client);
        let (mut stream, _) = listener.accept().await.unwrap();
        expect(&mut stream, PING).await;
        stream.write_all(reply.as_bytes()).await.unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;
        assert_eq!(rest, b"", "{reply:?}");
        let outcome = refused.await.unwrap();
        let unasked = matches!(&outcome, Outcome::NotSent(NotSent::Unavailable { reason, .. }) if reason.contains("no command asked for"));
        assert!(unasked, "{reply:?}: {outcome:?}");
    }
}

/// valkey 2676: a push came in two pieces, the first together with the end of the greeting.
#[tokio::test]
async fn a_push_may_be_cut_anywhere_between_greeting_and_first_reply() {
    let push = ">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n";
    for cut in 0..=push.len() {
        let (before, behind) = push.split_at(cut);
        let (listener, mut config) = listener().await;
        config.protocol = Protocol::Resp3;
        let client = Client::new(config).unwrap();
        let caller = get(&client);
        let (mut stream, _) = listener.accept().await.unwrap();
        expect(&mut stream, HELLO).await;
        stream.write_all(b"%1\r\n+proto\r\n:3\r\n").await.unwrap();
        expect(&mut stream, PING).await;
        stream
            .write_all(format!("+PONG\r\n{before}").as_bytes())
            .await
            .unwrap();
        expect(&mut stream, GET_K).await;
        stream
            .write_all(format!("{behind}$1\r\na\r\n").as_bytes())
            .await
            .unwrap();
        let outcome = caller.await.unwrap();
        assert_eq!(
            outcome.bytes().ok().flatten(),
            Some(&b"a"[..]),
            "cut at {cut}: {outcome:?}"
        );
    }
}

/// valkey 2676: a server answered one command with two redirects, and all later replies were one too early.
#[tokio::test]
async fn a_second_redirect_for_one_command_reaches_nobody() {
    let (listener, config) = listener().await;
    let client = Client::new(config).unwrap();
    let moved = get(&client);
    let mut stream = greet(&listener).await;
    expect(&mut stream, GET_K).await;
    stream
        .write_all(b"-MOVED 7 127.0.0.1:1\r\n-MOVED 7 127.0.0.1:1\r\n")
        .await
        .unwrap();
    assert!(matches!(moved.await.unwrap(), Outcome::Rejected(_)));
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
    assert_eq!(rest, b"", "the connection ends");
    let next = get(&client);
    let mut stream = greet(&listener).await;
    expect(&mut stream, GET_K).await;
    stream.write_all(b"$3\r\nown\r\n").await.unwrap();
    assert_eq!(next.await.unwrap().bytes().unwrap(), Some(&b"own"[..]));
}

/// redis-py 4110: each error while writing kept a place of the pool for ever.
#[tokio::test]
async fn errors_while_writing_leave_every_place_free() {
    let cluster = FakeCluster::start(1, 1).await;
    let mut config = cluster.single();
    (config.in_flight_bytes, config.queue_commands) = (1 << 20, 64);
    let max = config.max_connections as u64;
    let client = Client::new(config).unwrap();
    cluster.set_weather(Weather {
        cut_within: 100_000,
        ..Weather::default()
    });
    let value = vec![b'x'; 200_000];
    while client.stats().lost < 100 {
        let mut calls = JoinSet::new();
        for _ in 0..8 {
            let (client, batch) = (client.clone(), one("ECHO", &[Arg::Bytes(&value)]));
            calls.spawn(async move {
                client
                    .send(batch, Instant::now() + Duration::from_millis(200))
                    .await
            });
        }
        calls.join_all().await;
    }
    cluster.set_weather(Weather::default());
    let answered = async || {
        send_one(&client, "ECHO", &[Arg::Bytes(b"x")])
            .await
            .reply()
            .is_ok()
    };
    eventually("a call is answered", answered).await;
    check_books(&client).await;
    let stats = client.stats();
    assert!(stats.connections <= max && stats.retrying == 0, "{stats:?}");
    let mut calls = JoinSet::new();
    for _ in 0..64 {
        let client = client.clone();
        calls.spawn(async move { send_one(&client, "ECHO", &[Arg::Bytes(b"x")]).await });
    }
    for outcome in calls.join_all().await {
        outcome.reply().unwrap();
    }
}

/// jedis 4557: two callers each held the only connection to one node, and waited for the other's.
#[tokio::test]
async fn callers_of_the_same_nodes_in_opposite_orders_do_not_wait_for_each_other() {
    let cluster = FakeCluster::start(2, 1).await;
    let mut config = cluster.config();
    (config.max_connections, config.in_flight_commands) = (1, 1);
    let client = Client::new(config).unwrap();
    let key = |node: usize| {
        (0..)
            .map(|at| format!("k{at}"))
            .find(|key| cluster.owner(key) == node)
            .unwrap()
    };
    let keys = [key(0), key(1)];
    let mut callers = JoinSet::new();
    for caller in 0..64 {
        let (client, mut keys) = (client.clone(), keys.clone());
        keys.rotate_left(caller % 2);
        callers.spawn(async move {
            let mut batch = Batch::new();
            for key in keys.iter().cycle().take(6) {
                batch
                    .unit()
                    .command("INCRBY", &[Arg::Key(key.as_bytes()), Arg::Integer(1)]);
            }
            client.send(batch, soon()).await
        });
    }
    for outcome in callers.join_all().await.into_iter().flatten() {
        outcome.integer().unwrap();
    }
    assert_eq!(keys.map(|key| cluster.counter(&key)), [64 * 3, 64 * 3]);
}

/// valkey-glide 5177: 25 processes that started together took minutes to open their encrypted connections one by one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_clients_that_start_together_over_tls_are_all_served() {
    let certificates = Certificates::new("127.0.0.1");
    let cluster = FakeCluster::start_with(3, 1, Some(certificates.acceptor())).await;
    let mut clients = JoinSet::new();
    for client in 0..25 {
        let mut config = cluster.config();
        config.tls = Some(certificates.connector());
        clients.spawn(async move {
            let (client, mut batch) = (Client::new(config).unwrap(), increments(client));
            let deadline = soon();
            let outcomes = client.send(std::mem::take(&mut batch), deadline).await;
            (outcomes, client.stats())
        });
    }
    for (outcomes, stats) in clients.join_all().await {
        outcomes
            .iter()
            .for_each(|outcome| assert_eq!(outcome.integer().unwrap(), 1));
        assert!(stats.opened <= 3 * 4, "{stats:?}");
    }
}

/// Counts once on keys of all nodes.
fn increments(client: usize) -> Batch {
    let mut batch = Batch::new();
    for key in 0..30 {
        let key = format!("{client}:{key}");
        batch
            .unit()
            .command("INCRBY", &[Arg::Key(key.as_bytes()), Arg::Integer(1)]);
    }
    batch
}

/// valkey-glide 5487: commands in flight whose callers had given up held their places although nobody sent any more.
#[tokio::test]
async fn places_of_commands_without_a_reply_are_free_again() {
    let cluster = FakeCluster::start(1, 1).await;
    let mut config = cluster.single();
    (
        config.max_connections,
        config.in_flight_commands,
        config.queue_commands,
    ) = (1, 8, 8);
    let client = Client::new(config).unwrap();
    cluster.set_weather(Weather {
        replies: Replies::Swallowed,
        ..Weather::default()
    });
    let mut overloaded = false;
    eventually("all places are taken", async || {
        let mut calls = JoinSet::new();
        for _ in 0..32 {
            let (client, batch) = (client.clone(), one("ECHO", &[Arg::Bytes(b"x")]));
            calls.spawn(async move {
                client
                    .send(batch, Instant::now() + Duration::from_millis(20))
                    .await
                    .remove(0)
            });
        }
        let refused =
            |outcome: Outcome| matches!(outcome, Outcome::NotSent(NotSent::Overloaded { .. }));
        overloaded |= calls.join_all().await.into_iter().any(refused);
        overloaded
    })
    .await;
    cluster.set_weather(Weather::default());
    let answered = async || {
        send_one(&client, "ECHO", &[Arg::Bytes(b"x")])
            .await
            .reply()
            .is_ok()
    };
    eventually("a call is answered", answered).await;
    check_books(&client).await;
    assert!(client.stats().connections <= 2, "{:?}", client.stats());
}
