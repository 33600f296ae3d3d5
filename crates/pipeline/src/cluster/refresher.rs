//! Keeps the snapshot of a client fresh: takes turns with the other clients at asking the servers, and takes over what they
//! learn.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use super::Cluster;
use crate::cluster::agreement::SnapshotSummary;
use crate::cluster::shared_topology::{RefreshTime, SeenVersion};
use crate::stats::count;

/// Least time between two refreshes: redirects correct the snapshot meanwhile, slot by slot.
const REFRESH_AT_MOST_EVERY: Duration = Duration::from_secs(1);

/// Least time between two refreshes while a node cannot be reached: no redirect corrects the snapshot when another node takes
/// over from it.
const REFRESH_OF_LOSS_AT_MOST_EVERY: Duration = Duration::from_millis(500);

/// Many processes see the same move at the same time. Their refreshes are spread over this time, and over as much again for
/// every ten nodes, because the list of slots grows with the cluster. At most [`SPREAD_AT_MOST`].
const SPREAD: Duration = Duration::from_millis(100);

/// Redirects correct the snapshot meanwhile, so that a large cluster can wait; a lost node should still be noticed.
const SPREAD_AT_MOST: Duration = Duration::from_secs(5);

/// Before the first snapshot there is nothing to fall back on, so the wait is short.
const FIRST_REFRESH_AGAIN: Duration = Duration::from_millis(100);

/// A client whose turn takes longer than this is stuck, and others ask without it.
const PATIENCE: Duration = Duration::from_secs(10);

/// The task of one client that keeps its snapshot fresh.
#[derive(Debug)]
pub(crate) struct Refresher {
    cluster: Arc<Cluster>,
    /// How much of what the clients know is in the snapshot.
    seen: SeenVersion,
    changes: watch::Receiver<u64>,
}

impl Refresher {
    pub(crate) fn new(cluster: &Arc<Cluster>) -> Self {
        Self {
            cluster: Arc::clone(cluster),
            seen: SeenVersion::default(),
            changes: cluster.knowledge.changes(),
        }
    }

    /// Runs for ever.
    pub(crate) async fn keep_fresh(mut self) {
        let cluster = Arc::clone(&self.cluster);
        self.catch_up();
        let mut fresh_since = cluster.recently();
        loop {
            self.attend(cluster.ask_in_turn(fresh_since)).await;
            fresh_since = self.attend(cluster.refresh_due()).await;
        }
    }

    /// Does a task, and takes over what any client learns meanwhile.
    async fn attend<T>(&mut self, task: impl Future<Output = T>) -> T {
        let mut task = pin!(task);
        loop {
            tokio::select! {
                done = &mut task => {
                    self.catch_up();
                    return done;
                }
                Ok(()) = self.changes.changed() => self.catch_up(),
            }
        }
    }

    /// Takes over what this or another client learned.
    fn catch_up(&mut self) {
        let changes = self.cluster.knowledge.since(self.seen);
        if let Some(view) = &changes.view {
            self.cluster.install(changes.seen.version, view);
        }
        for (slot, owner) in &changes.moved {
            let owner = self.cluster.node_at(owner);
            self.cluster
                .correct(&self.cluster.topology.load_full(), *slot, &owner);
        }
        self.seen = changes.seen;
    }
}

impl Cluster {
    /// Asks the servers for a new view, unless another client did since `fresh_since`. One client asks at a time, and none
    /// too soon after the last one.
    async fn ask_in_turn(&self, fresh_since: Option<Instant>) {
        let mut turn = timeout(PATIENCE, self.knowledge.asking.lock()).await.ok();
        if let Some(last) = turn.as_deref().copied().flatten() {
            if last.found && fresh_since.is_none_or(|since| last.began >= since) {
                return;
            }
            sleep_until(last.began + self.least_interval() + self.spread()).await;
        }
        let began = Instant::now();
        let found = self.ask().await;
        if let Some(last) = &mut turn {
            **last = Some(RefreshTime { began, found });
        }
    }

    /// Least time between two refreshes.
    fn least_interval(&self) -> Duration {
        let topology = self.topology.load();
        match topology.epoch {
            0 => FIRST_REFRESH_AGAIN,
            _ if topology.nodes.iter().any(|node| node.is_lost()) => REFRESH_OF_LOSS_AT_MOST_EVERY,
            _ => REFRESH_AT_MOST_EVERY,
        }
    }

    /// Asks the servers for a new view. False when none could tell.
    async fn ask(&self) -> bool {
        count(&self.refreshes, 1);
        let known = SnapshotSummary::from_topology(&self.topology.load());
        let view = self.discovery.view(known, &self.context).await;
        let found = view.is_ok();
        match view {
            Ok(view) => self.knowledge.learn(view),
            Err(reason) => self.knowledge.learn_failure(reason),
        }
        found
    }

    /// Waits until a new view is wanted. Returns since when an answer is new enough.
    async fn refresh_due(&self) -> Option<Instant> {
        if self.topology.load().epoch == 0 {
            return self.recently();
        }
        let at_most = self
            .discovery
            .interval()
            .mul_f64(0.8 + 0.4 * fastrand::f64());
        match timeout(at_most, self.context.refresh_wanted.notified()).await {
            Ok(()) => Some(Instant::now()),
            Err(_) => self.recently(),
        }
    }

    /// What another client asked since then is as good as a regular refresh.
    fn recently(&self) -> Option<Instant> {
        Instant::now().checked_sub(self.discovery.interval().mul_f64(0.8))
    }

    /// A random part of the time over which processes spread their refreshes.
    fn spread(&self) -> Duration {
        spread(self.topology.load().nodes.len()).mul_f64(fastrand::f64())
    }
}

/// Over how much time the processes that use a cluster of so many primaries spread their refreshes.
fn spread(nodes: usize) -> Duration {
    let tens = u32::try_from(nodes / 10).unwrap_or(u32::MAX);
    SPREAD
        .saturating_mul(tens.saturating_add(1))
        .min(SPREAD_AT_MOST)
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;
    use crate::cluster::discovery::Discovery;
    use crate::cluster::shared_topology::SharedTopology;
    use crate::config::Config;
    use crate::config::address::Address;
    use crate::link::context::ClientContext;

    #[tokio::test(start_paused = true)]
    async fn a_client_that_is_stuck_in_its_turn_is_not_waited_for() {
        let nobody: Vec<Address> = vec!["127.0.0.1:4".parse().unwrap()];
        let config = Config::cluster(nobody.clone());
        let knowledge = SharedTopology::of(&config);
        let _turn = knowledge.asking.lock().await;
        let began = Instant::now();
        let context = ClientContext::new(config).unwrap();
        let cluster = Cluster::start(Discovery::Cluster(nobody), &context);
        while cluster.stats().refreshes == 0 {
            sleep(Duration::from_secs(1)).await;
        }
        let waited = began.elapsed();
        assert!((PATIENCE..2 * PATIENCE).contains(&waited), "{waited:?}");
        context.end();
        context.ended().await;
    }

    #[test]
    fn refreshes_spread_more_the_larger_the_cluster() {
        for (nodes, millis) in [
            (0, 100),
            (3, 100),
            (10, 200),
            (100, 1_100),
            (1_000, 5_000),
            (usize::MAX, 5_000),
        ] {
            assert_eq!(
                spread(nodes),
                Duration::from_millis(millis),
                "{nodes} nodes"
            );
        }
    }
}
