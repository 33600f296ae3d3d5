//! Several servers that may change: the snapshot of who owns what, and the task that keeps it fresh.

mod ask;
pub(crate) mod discovery;
mod renewal;
pub(crate) mod sentinels;
pub(crate) mod topology;
pub(crate) mod view;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::info;

use crate::cluster::discovery::{Discovery, Known};
use crate::cluster::renewal::Renewal;
use crate::cluster::topology::Topology;
use crate::cluster::view::View;
use crate::config::address::Address;
use crate::link::context::ClientContext;
use crate::node::Node;
use crate::stats::{Stats, count};
use crate::wire::slot::Slot;

/// Least time between two refreshes: redirects correct the snapshot meanwhile, slot by slot.
const REFRESH_AT_MOST_EVERY: Duration = Duration::from_secs(1);

/// Many clients see the same move at the same time. Their refreshes are spread over this time, and over as much again for
/// every ten nodes, because the list of slots grows with the cluster. At most [`SPREAD_AT_MOST`].
const SPREAD: Duration = Duration::from_millis(100);

/// Redirects correct the snapshot meanwhile, so that a large cluster can wait; a lost node should still be noticed.
const SPREAD_AT_MOST: Duration = Duration::from_secs(5);

/// Before the first snapshot there is nothing to fall back on, so the wait is short.
const FIRST_REFRESH_AGAIN: Duration = Duration::from_millis(100);

/// A node that left the cluster has this long to answer what is in flight.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// A cluster, or the primary that sentinels name: a cluster of one that may move.
#[derive(Debug)]
pub(crate) struct Cluster {
    discovery: Discovery,
    context: Arc<ClientContext>,
    topology: ArcSwap<Topology>,
    nodes: Mutex<Nodes>,
    renewal: Renewal,
    refreshes: AtomicU64,
}

#[derive(Debug, Default)]
struct Nodes {
    serving: HashMap<Address, Arc<Node>>,
    /// No longer in the snapshot; commands may be in flight.
    leaving: Vec<Arc<Node>>,
    /// The sum over nodes that have left.
    past: Stats,
}

impl Cluster {
    pub(crate) fn start(discovery: Discovery, context: &Arc<ClientContext>) -> Arc<Self> {
        let cluster = Arc::new(Self {
            discovery,
            context: Arc::clone(context),
            topology: ArcSwap::from_pointee(Topology::empty()),
            nodes: Mutex::new(Nodes::default()),
            renewal: Renewal::default(),
            refreshes: AtomicU64::new(0),
        });
        let refresher = Arc::clone(&cluster);
        context.spawn(context.stop.clone(), async move { refresher.keep_fresh().await });
        if let Discovery::Sentinel(sentinels) = &cluster.discovery {
            let (sentinels, context_too) = (Arc::clone(sentinels), Arc::clone(context));
            context.spawn(context.stop.clone(), async move { sentinels.listen(&context_too).await });
        }
        cluster
    }

    pub(crate) fn topology(&self) -> arc_swap::Guard<Arc<Topology>> {
        self.topology.load()
    }

    /// Asks for a new snapshot soon. Any number of calls cost one refresh, and no caller waits for it.
    pub(crate) fn want_refresh(&self) {
        self.context.refresh_wanted.notify_one();
    }

    /// Waits for a snapshot that is newer than the one of `epoch`.
    pub(crate) async fn renewed(&self, epoch: u64) {
        self.renewal.wait(|| self.topology.load().epoch != epoch).await;
    }

    /// The node that a server names by an address of its own; none when it is unknown where that is.
    pub(crate) fn node_named(&self, address: Address) -> Option<Arc<Node>> {
        self.context.config.reachable(address).map(|address| self.node_at(&address))
    }

    /// The node at an address; made when it is new.
    fn node_at(&self, address: &Address) -> Arc<Node> {
        let mut nodes = self.nodes();
        if let Some(node) = nodes.serving.get(address) {
            return Arc::clone(node);
        }
        let node = Node::new(address.clone(), &self.context);
        nodes.serving.insert(address.clone(), Arc::clone(&node));
        node
    }

    /// Corrects the owner of one slot, as a redirect said to a caller that used the snapshot of `epoch`.
    pub(crate) fn moved(&self, slot: Slot, owner: &Arc<Node>, epoch: u64) {
        self.want_refresh();
        let topology = self.topology.load();
        // A redirect seen with an older snapshot may be older than the current snapshot.
        if topology.epoch == epoch && !topology.patch(slot, owner) {
            // A snapshot that was taken meanwhile stays: it is newer than this correction.
            let corrected = Arc::new(topology.with_owner(slot, owner));
            self.topology.compare_and_swap(&topology, corrected);
        }
    }

    pub(crate) fn stats(&self) -> Stats {
        let nodes = self.nodes();
        let own = Stats { refreshes: self.refreshes.load(Relaxed), ..Stats::default() };
        nodes.serving.values().chain(&nodes.leaving).map(|node| node.stats()).chain([nodes.past, own]).sum()
    }

    pub(crate) fn close(&self) {
        let nodes = self.nodes();
        nodes.serving.values().chain(&nodes.leaving).for_each(|node| node.close());
    }

    fn nodes(&self) -> MutexGuard<'_, Nodes> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn keep_fresh(self: &Arc<Self>) {
        loop {
            let started = Instant::now();
            let known = self.refresh().await;
            let (at_least, at_most) = match known {
                true => (REFRESH_AT_MOST_EVERY, self.discovery.interval().mul_f64(0.8 + 0.4 * fastrand::f64())),
                false => (FIRST_REFRESH_AGAIN, FIRST_REFRESH_AGAIN),
            };
            let spread = spread(self.topology.load().nodes.len());
            sleep_until(started + at_least + spread.mul_f64(fastrand::f64())).await;
            let _ = timeout(at_most, self.context.refresh_wanted.notified()).await;
        }
    }

    /// Takes a new snapshot. False while there has never been one.
    async fn refresh(self: &Arc<Self>) -> bool {
        count(&self.refreshes, 1);
        let known = Known::of(&self.topology.load());
        if let Some(view) = self.discovery.view(known, &self.context).await {
            self.install(&view);
        }
        self.topology.load().epoch > 0
    }

    fn install(self: &Arc<Self>, view: &View) {
        let epoch = self.topology.load().epoch + 1;
        let topology = Arc::new(Topology::new(epoch, view, |address| self.node_at(address)));
        if epoch == 1 {
            info!(nodes = topology.nodes.len(), slots = view.covered(), "topology learned");
        }
        self.topology.store(topology);
        self.renewal.announce();
        let mut nodes = self.nodes();
        // A redirect may have added a node to the snapshot since.
        let in_use: Vec<Address> = self.topology.load().nodes.iter().map(|node| node.address.clone()).collect();
        let gone: Vec<Arc<Node>> =
            nodes.serving.extract_if(|address, _| !in_use.contains(address)).map(|(_, node)| node).collect();
        nodes.leaving.extend(gone.iter().cloned());
        drop(nodes);
        for node in gone {
            node.leave();
            let cluster = Arc::clone(self);
            self.context.spawn(self.context.stop.clone(), async move { cluster.retire(node).await });
        }
    }

    /// Gives a node that left time to answer what is in flight, then closes it.
    async fn retire(&self, node: Arc<Node>) {
        sleep(DRAIN_TIMEOUT).await;
        node.end();
        // Its connections end in their own tasks, and until then they are open.
        while node.stats().connections > 0 {
            sleep(Duration::from_millis(10)).await;
        }
        let mut nodes = self.nodes();
        nodes.leaving.retain(|leaving| !Arc::ptr_eq(leaving, &node));
        nodes.past = [nodes.past, node.stats()].into_iter().sum();
    }
}

/// Over how much time clients of a cluster of so many primaries spread their refreshes.
fn spread(nodes: usize) -> Duration {
    let tens = u32::try_from(nodes / 10).unwrap_or(u32::MAX);
    SPREAD.saturating_mul(tens.saturating_add(1)).min(SPREAD_AT_MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refreshes_spread_more_the_larger_the_cluster() {
        for (nodes, millis) in [(0, 100), (3, 100), (10, 200), (100, 1_100), (1_000, 5_000), (usize::MAX, 5_000)] {
            assert_eq!(spread(nodes), Duration::from_millis(millis), "{nodes} nodes");
        }
    }
}
