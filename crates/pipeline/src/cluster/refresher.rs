//! Keeps the snapshot of a client fresh: alternates with other clients in querying the servers, and
//! installs what any of them learns.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use super::{Cluster, LastRefresh, SeenVersion, SnapshotSummary};
use crate::link::count;

/// Minimum interval between two refreshes. Redirects correct the snapshot slot by slot in the
/// meantime.
const MIN_REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// Minimum interval between two refreshes while a node is unreachable: no redirect corrects the
/// snapshot after a failover.
const MIN_REFRESH_INTERVAL_ON_LOSS: Duration = Duration::from_millis(500);

/// Time over which processes spread their refreshes, because many see the same move at the same
/// time. It grows by as much for every ten nodes, because the list of slots grows with the cluster.
/// At most [`MAX_REFRESH_SPREAD`].
const REFRESH_SPREAD: Duration = Duration::from_millis(100);

/// Maximum time over which refreshes are spread. A large cluster can wait, because redirects
/// correct the snapshot; a lost node must still be noticed.
const MAX_REFRESH_SPREAD: Duration = Duration::from_secs(5);

/// Minimum interval between refreshes before the first snapshot. It is short because there is no
/// older snapshot to use.
const FIRST_REFRESH_INTERVAL: Duration = Duration::from_millis(100);

/// Maximum wait for the refresh of another client. A longer refresh is stuck, and this client
/// queries without it.
const REFRESH_LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// The task of one client that keeps its snapshot fresh.
#[derive(Debug)]
pub(crate) struct Refresher {
    cluster: Arc<Cluster>,
    /// Version of the shared topology that the snapshot includes.
    seen: SeenVersion,
    changes: watch::Receiver<u64>,
}

impl Refresher {
    pub(crate) fn new(cluster: &Arc<Cluster>) -> Self {
        Self {
            cluster: cluster.clone(),
            seen: SeenVersion::default(),
            changes: cluster.shared.changes(),
        }
    }

    /// Runs for ever.
    pub(crate) async fn keep_fresh(mut self) {
        let cluster = self.cluster.clone();
        self.catch_up();
        let mut fresh_since = cluster.oldest_fresh_time();
        loop {
            self.run_and_catch_up(cluster.refresh_in_turn(fresh_since))
                .await;
            fresh_since = self.run_and_catch_up(cluster.refresh_due()).await;
        }
    }

    /// Runs a task, and installs what any client learns in the meantime.
    async fn run_and_catch_up<T>(&mut self, task: impl Future<Output = T>) -> T {
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

    /// Installs what this or another client learned.
    fn catch_up(&mut self) {
        let changes = self.cluster.shared.changes_since(self.seen);
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
    /// Refreshes the shared view, unless another client did since `fresh_since`. One client
    /// refreshes at a time, and refreshes keep their minimum interval.
    async fn refresh_in_turn(&self, fresh_since: Option<Instant>) {
        let mut last_refresh = timeout(REFRESH_LOCK_TIMEOUT, self.shared.refresh_lock.lock())
            .await
            .ok();
        if let Some(last) = last_refresh.as_deref().copied().flatten() {
            if last.found && fresh_since.is_none_or(|since| last.started_at >= since) {
                return;
            }
            sleep_until(last.started_at + self.min_interval() + self.spread()).await;
        }
        let started_at = Instant::now();
        let found = self.refresh().await;
        if let Some(last) = &mut last_refresh {
            **last = Some(LastRefresh { started_at, found });
        }
    }

    /// Returns the minimum interval between two refreshes.
    fn min_interval(&self) -> Duration {
        let topology = self.topology.load();
        match topology.epoch {
            0 => FIRST_REFRESH_INTERVAL,
            _ if topology.nodes.iter().any(|node| node.is_lost()) => MIN_REFRESH_INTERVAL_ON_LOSS,
            _ => MIN_REFRESH_INTERVAL,
        }
    }

    /// Queries the servers for a new view. Returns false if there was none.
    async fn refresh(&self) -> bool {
        count(&self.refreshes, 1);
        let current = SnapshotSummary::from_topology(&self.topology.load());
        let view = self.discovery.view(current, &self.context).await;
        let found = view.is_ok();
        match view {
            Ok(view) => self.shared.set_view(view),
            Err(reason) => self.shared.set_failure(reason),
        }
        found
    }

    /// Waits until a refresh is due. Returns the earliest time at which a refresh of another client
    /// counts.
    async fn refresh_due(&self) -> Option<Instant> {
        if self.topology.load().epoch == 0 {
            return self.oldest_fresh_time();
        }
        let max_wait = self
            .discovery
            .interval()
            .mul_f64(0.8 + 0.4 * fastrand::f64());
        match timeout(max_wait, self.context.refresh_wanted.notified()).await {
            Ok(()) => Some(Instant::now()),
            Err(_) => self.oldest_fresh_time(),
        }
    }

    /// Returns the earliest time at which another client's refresh replaces a regular refresh.
    fn oldest_fresh_time(&self) -> Option<Instant> {
        Instant::now().checked_sub(self.discovery.interval().mul_f64(0.8))
    }

    /// Returns a random part of the time over which processes spread their refreshes.
    fn spread(&self) -> Duration {
        spread(self.topology.load().nodes.len()).mul_f64(fastrand::f64())
    }
}

/// Returns the time over which the processes that use a cluster of `nodes` primaries spread their
/// refreshes.
fn spread(nodes: usize) -> Duration {
    let tens = u32::try_from(nodes / 10).unwrap_or(u32::MAX);
    REFRESH_SPREAD
        .saturating_mul(tens.saturating_add(1))
        .min(MAX_REFRESH_SPREAD)
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;
    use crate::cluster::{Discovery, SharedTopology};
    use crate::config::{Address, Config};
    use crate::link::ClientContext;

    #[tokio::test(start_paused = true)]
    async fn a_client_that_is_stuck_in_its_turn_is_not_waited_for() {
        let unreachable: Vec<Address> = vec!["127.0.0.1:4".parse().unwrap()];
        let config = Config::cluster(unreachable.clone());
        let knowledge = SharedTopology::for_config(&config);
        let _turn = knowledge.refresh_lock.lock().await;
        let began = Instant::now();
        let context = ClientContext::new(config).unwrap();
        let cluster = Cluster::start(Discovery::Cluster(unreachable), &context);
        while cluster.stats().refreshes == 0 {
            sleep(Duration::from_secs(1)).await;
        }
        let waited = began.elapsed();
        assert!(
            (REFRESH_LOCK_TIMEOUT..2 * REFRESH_LOCK_TIMEOUT).contains(&waited),
            "{waited:?}"
        );
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
