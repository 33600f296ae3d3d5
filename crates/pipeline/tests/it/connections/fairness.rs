//! One thread for all: nobody keeps it to himself.

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

use tidegate_pipeline::test_util::{RedisServer, free_port};
use tidegate_pipeline::{Arg, Batch, Client, Config, NotSent, Outcome};
use tokio::task::{LocalSet, spawn_local};

use crate::support::{eventually, one, send_one, soon};

/// A connection reads so often at most before others run.
const READS_PER_POLL: u64 = 16;

#[tokio::test]
async fn a_busy_connection_lets_other_tasks_run() {
    let server = RedisServer::start().await;
    let client = Client::new(server.config()).unwrap();
    let list = [Arg::Key(b"k")]
        .into_iter()
        .chain((0..10_000).map(|_| Arg::Bytes(b"x")))
        .collect::<Vec<_>>();
    send_one(&client, "RPUSH", &list).await.reply().unwrap();
    let mut batch = Batch::new();
    for _ in 0..64 {
        // Easier to write than to read: there is always more.
        batch.unit().command(
            "LRANGE",
            &[Arg::Key(b"k"), Arg::Integer(0), Arg::Integer(-1)],
        );
    }
    let before = client.stats().reads;
    let load = {
        let client = client.clone();
        tokio::spawn(async move {
            assert!(
                client
                    .send(batch, soon())
                    .await
                    .iter()
                    .all(|outcome| outcome.reply().is_ok())
            );
        })
    };
    // Always ready to run: whoever else is takes turns with it.
    let (mut last, mut most) = (before, 0);
    let other = tokio::spawn(poll_fn(move |cx| {
        let now = client.stats().reads;
        most = most.max(now - last);
        last = now;
        cx.waker().wake_by_ref();
        if load.is_finished() {
            Poll::Ready(most)
        } else {
            Poll::Pending
        }
    }));
    let most = other.await.unwrap();
    assert!(most <= READS_PER_POLL, "{most} reads while nobody else ran");
}

#[tokio::test]
async fn a_connection_that_can_neither_read_nor_write_rests() {
    let server = RedisServer::start().await;
    let client = Client::new(server.config()).unwrap();
    send_one(&client, "PING", &[]).await.reply().unwrap();
    server.pause();
    // More than the kernel takes, so that the write is stuck as well.
    let value = vec![b'x'; 64 << 20];
    let stuck = {
        let client = client.clone();
        tokio::spawn(async move {
            send_one(&client, "SET", &[Arg::Key(b"k"), Arg::Bytes(&value)]).await
        })
    };
    let (mut last, mut same) = (0, 0);
    eventually("the write is stuck", async || {
        let now = client.stats().bytes_out;
        same = if now == last { same + 1 } else { 0 };
        last = now;
        now > 1_000 && same > 10
    })
    .await;
    let (before, start) = (client.stats().empty_wakes, Instant::now());
    eventually("a while has passed", async || {
        start.elapsed() > Duration::from_millis(300)
    })
    .await;
    let wakes = client.stats().empty_wakes - before;
    stuck.abort();
    assert!(
        wakes <= 3,
        "{wakes} wakes in {:?} with nothing to do",
        start.elapsed()
    );
}

#[tokio::test]
async fn a_caller_that_is_refused_at_once_lets_other_tasks_run() {
    let nobody = format!("127.0.0.1:{}", free_port()).parse().unwrap();
    let client = Client::new(Config::single(nobody)).unwrap();
    let down = send_one(&client, "PING", &[]).await;
    assert!(
        matches!(down, Outcome::NotSent(NotSent::Unavailable { .. })),
        "{down:?}"
    );
    for (name, reason) in [
        ("PING", "the server is down"),
        ("SUBSCRIBE", "the command is refused"),
    ] {
        let ran = Rc::new(Cell::new(false));
        let other = Rc::clone(&ran);
        let tasks = LocalSet::new();
        tasks.spawn_local(async move {
            spawn_local(async move { other.set(true) });
        });
        let client = client.clone();
        let refused = tasks.run_until(async {
            for refusals in 1..10_000 {
                client.send(one(name, &[]), soon()).await;
                if ran.get() {
                    return refusals;
                }
            }
            0
        });
        assert!((1..1_000).contains(&refused.await), "{reason}");
    }
}
