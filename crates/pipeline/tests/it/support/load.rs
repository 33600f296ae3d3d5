//! Callers that count, check every reply, and keep books.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use tidegate_pipeline::{Arg, Batch, Client, Outcome, Reply};
use tokio::task::JoinSet;

use crate::support::{eventually, send_one};

/// Callers at work, one for each counter.
pub(crate) struct Load {
    client: Client,
    stop: Arc<AtomicBool>,
    callers: JoinSet<Tally>,
}

/// What one caller knows about its counter.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) key: String,
    pub(crate) acknowledged: u64,
    pub(crate) unknown: u64,
    /// How increments failed that were not acknowledged.
    pub(crate) errors: Vec<Outcome>,
}

impl Load {
    /// Starts a caller for each key, who gives each of its calls `patience`.
    pub(crate) fn start(client: &Client, keys: &[String], patience: Duration) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut callers = JoinSet::new();
        for key in keys {
            callers.spawn(work(
                client.clone(),
                key.clone(),
                patience,
                Arc::clone(&stop),
            ));
        }
        Self {
            client: client.clone(),
            stop,
            callers,
        }
    }

    /// Waits until the client has read `replies` more replies.
    pub(crate) async fn goes_on_for(&self, replies: u64) {
        let goal = self.client.stats().replies + replies;
        eventually("work goes on", async || self.client.stats().replies >= goal).await;
    }

    /// Lets the callers finish. Fails when one of them saw a reply that was not its own.
    pub(crate) async fn stop(self) -> Vec<Tally> {
        self.stop.store(true, SeqCst);
        self.callers.join_all().await
    }
}

impl Tally {
    /// The counter's value now.
    pub(crate) async fn counted(&self, client: &Client) -> u64 {
        let outcome = send_one(
            client,
            "INCRBY",
            &[Arg::Key(self.key.as_bytes()), Arg::Integer(0)],
        )
        .await;
        u64::try_from(outcome.integer().unwrap()).unwrap()
    }
}

/// Counts until told to stop. Each call also echoes a token that no other call ever sends.
async fn work(client: Client, key: String, patience: Duration, stop: Arc<AtomicBool>) -> Tally {
    let mut tally = Tally {
        key: key.clone(),
        ..Tally::default()
    };
    let mut turn = 0_u64;
    while !stop.load(SeqCst) {
        turn += 1;
        // The braces bring the token to the counter's node.
        let token = format!("{{{key}}}:{turn}");
        let mut batch = Batch::new();
        batch.unit().command("ECHO", &[Arg::Key(token.as_bytes())]);
        batch
            .unit()
            .command("INCRBY", &[Arg::Key(key.as_bytes()), Arg::Integer(1)]);
        let outcomes = client.send(batch, Instant::now() + patience).await;
        if let Outcome::Reply(reply) = &outcomes[0] {
            assert_eq!(
                reply,
                &Reply::Bulk(token.into()),
                "a reply of somebody else"
            );
        }
        match &outcomes[1] {
            Outcome::Reply(Reply::Integer(value)) => {
                tally.acknowledged += 1;
                let most = tally.acknowledged + tally.unknown;
                assert!(
                    (1..=most as i64).contains(value),
                    "{key} is {value} after at most {most} increments"
                );
                continue;
            }
            Outcome::Unknown(_) => tally.unknown += 1,
            Outcome::NotSent(_) | Outcome::Rejected(_) => {}
            other => panic!("{other:?}"),
        }
        // A short pause, so that a node that refuses at once does not make the test spin.
        tokio::time::sleep(Duration::from_millis(2)).await;
        // A few tell the story; a node that is down for seconds would fill the memory with the rest.
        if tally.errors.len() < 100 {
            tally.errors.push(outcomes[1].clone());
        }
    }
    tally
}

/// The keys that `owned` is true for.
pub(crate) fn keys_where(count: usize, mut owned: impl FnMut(&str) -> bool) -> Vec<String> {
    (0..)
        .map(|index| format!("counter-{index}"))
        .filter(|key| owned(key))
        .take(count)
        .collect()
}

/// Checks that nothing was counted twice, and nothing acknowledged was lost.
pub(crate) async fn check_exact(client: &Client, tallies: &[Tally]) {
    for tally in tallies {
        let counted = tally.counted(client).await;
        let range = tally.acknowledged..=tally.acknowledged + tally.unknown;
        assert!(
            range.contains(&counted),
            "{} is {counted}, not in {range:?}",
            tally.key
        );
    }
}

/// Checks that nothing was counted twice. Replication lags behind, so a failover may lose what was acknowledged.
pub(crate) async fn check_not_doubled(client: &Client, tallies: &[Tally]) {
    for tally in tallies {
        let (counted, most) = (
            tally.counted(client).await,
            tally.acknowledged + tally.unknown,
        );
        assert!(
            counted <= most,
            "{} is {counted}, more than {most}",
            tally.key
        );
    }
}

/// Waits until nothing is under way, and checks that every written command was answered or lost.
pub(crate) async fn check_books(client: &Client) {
    eventually("every written command was answered or lost", async || {
        let stats = client.stats();
        stats.waiting == 0 && stats.commands == stats.replies + stats.lost
    })
    .await;
}
