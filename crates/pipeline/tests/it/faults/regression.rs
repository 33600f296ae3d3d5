//! What once went wrong.

use std::future::poll_fn;
use std::task::Poll;
use std::time::{Duration, Instant};

use tidegate_pipeline::test_util::{RedisCluster, RedisServer};
use tidegate_pipeline::{Arg, Batch, Client, Outcome};

use crate::support::fake::FakeCluster;
use crate::support::{eventually, one, send_one, soon};

/// The books of a node that left the cluster were closed while its connections still were being closed: each such node
/// left a connection in the statistics that nobody had.
#[tokio::test]
async fn a_node_that_left_takes_its_connections_out_of_the_books() {
    let cluster = FakeCluster::start(3, 1).await;
    let mut config = cluster.config();
    // A busy node gets more connections. With one at most for each, their number is that of the nodes.
    config.max_connections = 1;
    let client = Client::new(config).unwrap();
    let mut batch = Batch::new();
    for index in 0..30 {
        batch.unit().command(
            "EXPIRE",
            &[Arg::Key(format!("key-{index}").as_bytes()), Arg::Integer(1)],
        );
    }
    assert!(
        client
            .send(batch.clone(), soon())
            .await
            .iter()
            .all(|outcome| outcome.reply().is_ok())
    );
    assert_eq!(client.stats().connections, 3);
    cluster.hand_over(2, 0);
    assert!(
        client
            .send(batch, soon())
            .await
            .iter()
            .all(|outcome| outcome.reply().is_ok())
    );
    eventually("the connection is closed and counted", async || {
        client.stats().connections == 2
    })
    .await;
    let stats = client.stats();
    assert_eq!((stats.opened, stats.closed), (3, 1), "{stats:?}");
}

/// The silence of a server was measured from the moment a command was taken, on a clock that went on while this process was
/// not running: what was written a moment ago counted as unanswered for long, and the connection as suspect.
#[tokio::test]
async fn a_process_that_did_not_run_does_not_blame_its_server() {
    let server = RedisServer::start().await;
    let client = Client::new(server.config()).unwrap();
    send_one(&client, "PING", &[]).await.reply().unwrap();
    let mut batch = Batch::new();
    // Enough for the connection to let others run before it writes.
    for _ in 0..100 {
        batch.unit().command("PING", &[]);
    }
    let call = {
        let client = client.clone();
        tokio::spawn(async move { client.send(batch, soon()).await })
    };
    // Its first turn comes before that of the connection, its second one between taking and writing.
    let mut turns = 0;
    let hog = tokio::spawn(poll_fn(move |cx| {
        turns += 1;
        cx.waker().wake_by_ref();
        if turns == 1 {
            return Poll::Pending;
        }
        let end = Instant::now() + Duration::from_millis(800);
        while Instant::now() < end {
            std::thread::park_timeout(Duration::from_millis(10));
        }
        Poll::Ready(())
    }));
    hog.await.unwrap();
    assert!(
        call.await
            .unwrap()
            .iter()
            .all(|outcome| outcome.reply().is_ok())
    );
    // Long enough for another connection, if one was asked for.
    for _ in 0..200 {
        send_one(&client, "PING", &[]).await.reply().unwrap();
    }
    assert_eq!(client.stats().opened, 1, "nobody was silent");
}

/// A unit without commands at the end of a batch became a group of its own: behind a full group, or at another node of a
/// cluster. No reply ended that group, so it took the reply of the next caller.
#[tokio::test]
async fn a_batch_may_end_with_an_empty_unit() {
    let server = RedisServer::start().await;
    let client = Client::new(server.config()).unwrap();
    let mut batch = Batch::new();
    batch.unit().command(
        "SET",
        &[Arg::Key(b"k"), Arg::Bytes(&vec![b'x'; 300 * 1024])],
    );
    batch.unit();
    let next = one("INCRBY", &[Arg::Key(b"n"), Arg::Integer(1)]);
    let (outcomes, next) = tokio::join!(client.send(batch, soon()), client.send(next, soon()));
    assert!(matches!(&outcomes[..], [Outcome::Reply(_)]), "{outcomes:?}");
    assert_eq!(next[0].integer().unwrap(), 1);

    let cluster = RedisCluster::start(3, 0).await;
    let client = Client::new(cluster.config()).unwrap();
    for count in 1..=20 {
        let mut batch = one("INCRBY", &[Arg::Key(b"n"), Arg::Integer(1)]);
        batch.unit();
        assert_eq!(
            client.send(batch, soon()).await[0].integer().unwrap(),
            count
        );
        assert_eq!(client.stats().closed, 0, "a connection was silent");
    }
}
