//! Callers that wait to try again.

use std::time::{Duration, Instant};

use tidegate_pipeline::test_util::{RedisServer, free_port};
use tidegate_pipeline::{Arg, Batch, Client, Config, NotSent, Outcome};
use tokio::task::JoinSet;

use crate::support::fake::FakeCluster;
use crate::support::{eventually, one, send_one, soon};

fn increment() -> Batch {
    one("INCRBY", &[Arg::Key(b"key"), Arg::Integer(1)])
}

/// A client that has its connection, if it can have one.
async fn client(config: Config) -> Client {
    let client = Client::new(config).unwrap();
    let _ = client
        .send(
            one("PING", &[]),
            Instant::now() + Duration::from_millis(200),
        )
        .await;
    client
}

/// Sends the batch for so many callers at once, and returns how many were refused as too many, while the others waited.
async fn refused(client: &Client, batch: &Batch, callers: usize, wait: Duration) -> usize {
    let mut tasks = JoinSet::new();
    for _ in 0..callers {
        let (client, batch) = (client.clone(), batch.clone());
        tasks.spawn(async move {
            let deadline = Instant::now() + wait;
            let outcome = client.send(batch, deadline).await.remove(0);
            let overloaded = matches!(outcome, Outcome::NotSent(NotSent::RetriesOverloaded { .. }));
            assert!(
                overloaded || Instant::now() >= deadline || matches!(outcome, Outcome::Rejected(_)),
                "{outcome:?}"
            );
            overloaded
        });
    }
    tasks
        .join_all()
        .await
        .into_iter()
        .filter(|&overloaded| overloaded)
        .count()
}

/// Callers without an owner, or whom the server told to come again, were outside of every bound.
#[tokio::test]
async fn callers_that_wait_to_try_again_are_bounded_in_number_and_bytes() {
    let wait = Duration::from_millis(500);
    let replica =
        RedisServer::start_with(&["--replicaof", "127.0.0.1", &free_port().to_string()]).await;
    let nobody = Config::cluster(vec![format!("127.0.0.1:{}", free_port()).parse().unwrap()]);
    for config in [replica.config(), nobody] {
        let mut few = config.clone();
        few.queue_commands = 10;
        let few = client(few).await;
        assert_eq!(
            refused(&few, &increment(), 30, wait).await,
            20,
            "{:?}",
            config.servers
        );
        assert_eq!(
            (few.stats().retrying, few.stats().overloads),
            (0, 20),
            "whoever leaves makes room"
        );
        assert_eq!(
            refused(&few, &increment(), 10, wait).await,
            0,
            "{:?}",
            config.servers
        );

        let mut small = config.clone();
        small.queue_bytes = 3_500;
        let large = one("SET", &[Arg::Key(b"key"), Arg::Bytes(&[b'x'; 1_000])]);
        assert_eq!(
            refused(&client(small).await, &large, 10, wait).await,
            7,
            "{:?}",
            config.servers
        );
    }
}

/// A single server that became a replica kept every call until its deadline.
#[tokio::test]
async fn a_single_server_that_takes_no_writes_is_waited_for_a_second_only() {
    let server = RedisServer::start().await;
    let client = client(server.config()).await;
    let _ = server.raw("REPLICAOF 127.0.0.1 1");
    let (began, deadline) = (Instant::now(), Instant::now() + Duration::from_secs(30));
    let outcome = client.send(increment(), deadline).await.remove(0);
    assert!(matches!(&outcome, Outcome::Rejected(_)), "{outcome:?}");
    let waited = began.elapsed();
    assert!(
        (Duration::from_secs(1)..Duration::from_secs(10)).contains(&waited),
        "{waited:?}"
    );
    let later = client.send(increment(), deadline);
    let promoted = async {
        tokio::task::yield_now().await;
        server.raw("REPLICAOF NO ONE")
    };
    assert!(
        tokio::join!(later, promoted).0[0].reply().is_ok(),
        "a short change is not noticed"
    );
}

/// A counter must not stay without its expiry because others wait.
#[tokio::test]
async fn a_call_that_has_begun_is_not_refused_for_others_that_have_not() {
    let server = FakeCluster::start(1, 1).await;
    let mut config = server.single();
    config.queue_commands = 2;
    let client = client(config).await;
    server.load(&["EXPIRE", "ECHO"]);
    let mut calls = JoinSet::new();
    let echo = client.clone();
    calls.spawn(async move { echo.send(one("ECHO", &[Arg::Bytes(b"a")]), soon()).await });
    let echo = client.clone();
    calls.spawn(async move { echo.send(one("ECHO", &[Arg::Bytes(b"b")]), soon()).await });
    eventually("both wait", async || client.stats().retrying == 2).await;
    let late = send_one(&client, "ECHO", &[Arg::Bytes(b"c")]).await;
    let Outcome::NotSent(NotSent::RetriesOverloaded { last }) = &late else {
        panic!("{late:?}")
    };
    assert!(last.starts_with("LOADING"), "{last}");

    let mut counter = Batch::new();
    let key = Arg::Key(b"key");
    counter
        .unit()
        .command("INCRBY", &[key, Arg::Integer(1)])
        .repeatable("EXPIRE", &[key, Arg::Integer(60)]);
    let begun = client.clone();
    calls.spawn(async move { begun.send(counter, soon()).await });
    eventually("three wait", async || client.stats().retrying == 4).await;
    server.load(&[]);
    for outcomes in calls.join_all().await {
        assert!(
            outcomes.iter().all(|outcome| outcome.reply().is_ok()),
            "{outcomes:?}"
        );
    }
    assert_eq!((server.ran(), client.stats().retrying), (1, 0));
}

/// A new snapshot woke all that waited at once: they went before every other task of their thread.
#[tokio::test]
async fn a_snapshot_does_not_send_all_that_wait_at_once() {
    const CALLERS: u64 = 2_000;
    let cluster = FakeCluster::start(1, 1).await;
    cluster.hide_owners();
    let client = Client::new(cluster.config()).unwrap();
    let mut calls = JoinSet::new();
    for _ in 0..CALLERS {
        let client = client.clone();
        calls.spawn(async move { client.send(increment(), soon()).await.remove(0) });
    }
    eventually("all wait", async || client.stats().retrying == CALLERS).await;
    let nothing = client.stats().retries;
    // A task like any other: how many calls go between two of its turns?
    let others = tokio::spawn(async move {
        let (mut gone, mut most) = (0, 0);
        while gone < CALLERS {
            tokio::task::yield_now().await;
            let now = client.stats().retries - nothing;
            (gone, most) = (now, most.max(now - gone));
        }
        most
    });
    cluster.show_owners();
    for outcome in calls.join_all().await {
        outcome.integer().unwrap();
    }
    let most = others.await.unwrap();
    assert!(most <= CALLERS / 4, "{most} calls went at once");
    assert_eq!(cluster.ran(), CALLERS);
}
