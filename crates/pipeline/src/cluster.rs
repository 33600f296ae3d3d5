//! Several servers that may change: the snapshot of slot owners, and the nodes in it.

mod agreement;
mod discovery;
mod query;
mod refresher;
mod sentinels;
mod shared_topology;
mod topology;
mod topology_waiters;
pub(crate) mod view;

pub(crate) use discovery::Discovery;
pub(crate) use sentinels::Sentinels;
pub(crate) use topology::Topology;
pub(crate) use view::{View, endpoint};

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::time::sleep;
use tracing::info;

use crate::config::Address;
use crate::link::{ClientContext, Stats};
use crate::node::Node;
use crate::wire::Slot;
use agreement::{Agreement, Conclusion, SnapshotSummary};
use query::{
    LogThrottle, QueryFailures, query_server, query_with_login, warn_no_owners, warn_no_primary,
    within_query_timeout,
};
use refresher::Refresher;
use shared_topology::{LastRefresh, SeenVersion, SharedTopology};
use topology_waiters::TopologyWaiters;
use view::current_epoch;

/// Time in which a node that left the cluster may answer commands in flight.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// A cluster, or the primary that sentinels name, which is a cluster of one that may move.
#[derive(Debug)]
pub(crate) struct Cluster {
    discovery: Discovery,
    context: Arc<ClientContext>,
    topology: ArcSwap<Topology>,
    /// Topology shared with the other clients of these servers.
    shared: Arc<SharedTopology>,
    nodes: Mutex<Nodes>,
    waiters: TopologyWaiters,
    refreshes: AtomicU64,
}

#[derive(Debug, Default)]
struct Nodes {
    serving: HashMap<Address, Arc<Node>>,
    /// Nodes that are no longer in the snapshot. Commands may be in flight.
    leaving: Vec<Arc<Node>>,
    /// Sum of the counts of nodes that have left.
    past: Stats,
}

impl Nodes {
    /// Moves the nodes that the snapshot does not have to those that leave, and returns them.
    fn remove_unused(&mut self, topology: &Topology) -> Vec<Arc<Node>> {
        let is_unused = |address: &Address, _: &mut Arc<Node>| !topology.has_node(address);
        let removed = self.serving.extract_if(is_unused);
        let removed: Vec<Arc<Node>> = removed.map(|(_, node)| node).collect();
        self.leaving.extend(removed.iter().cloned());
        removed
    }
}

impl Cluster {
    pub(crate) fn start(discovery: Discovery, context: &Arc<ClientContext>) -> Arc<Self> {
        let cluster = Arc::new(Self {
            discovery,
            context: context.clone(),
            topology: ArcSwap::from_pointee(Topology::empty()),
            shared: SharedTopology::for_config(&context.config),
            nodes: Mutex::new(Nodes::default()),
            waiters: TopologyWaiters::default(),
            refreshes: AtomicU64::new(0),
        });
        let refresher = Refresher::new(&cluster);
        context.spawn(context.stop.clone(), refresher.keep_fresh());
        if let Discovery::Sentinel(sentinels) = &cluster.discovery {
            let sentinels = sentinels.clone();
            let task_context = context.clone();
            let shared = cluster.shared.clone();
            context.spawn(context.stop.clone(), async move {
                let _lock = shared.listen_lock.lock().await;
                sentinels.listen(&task_context).await;
            });
        }
        cluster
    }

    pub(crate) fn topology(&self) -> arc_swap::Guard<Arc<Topology>> {
        self.topology.load()
    }

    /// Requests a new snapshot soon. Any number of calls cost one refresh, and no caller waits for
    /// it.
    pub(crate) fn want_refresh(&self) {
        self.context.refresh_wanted.notify_one();
    }

    /// Waits for a snapshot that is newer than the one of `epoch`.
    pub(crate) async fn wait_for_newer(&self, epoch: u64) {
        self.waiters
            .wait(|| self.topology.load().epoch != epoch)
            .await;
    }

    /// Returns the reason why there is no newer snapshot: the answers of the last servers that were
    /// queried.
    pub(crate) fn failure(&self) -> Option<Arc<str>> {
        self.shared.failure()
    }

    /// Returns the node that a server names by its own address. `None` if that address cannot be
    /// translated.
    pub(crate) fn node_named(&self, address: Address) -> Option<Arc<Node>> {
        self.context
            .config
            .reachable(address)
            .map(|address| self.node_at(&address))
    }

    /// Returns the node at an address, and creates it if it is new.
    fn node_at(&self, address: &Address) -> Arc<Node> {
        let mut nodes = self.nodes();
        if let Some(node) = nodes.serving.get(address) {
            return node.clone();
        }
        let node = Node::new(address.clone(), &self.context);
        nodes.serving.insert(address.clone(), node.clone());
        node
    }

    /// Corrects the owner of one slot after a redirect of a caller that used the snapshot of
    /// `epoch`, and shares it with the other clients of these servers.
    pub(crate) fn on_moved(&self, slot: Slot, owner: &Arc<Node>, epoch: u64) {
        self.want_refresh();
        let topology = self.topology.load();
        // A redirect seen with an older snapshot may be older than the current snapshot.
        if topology.epoch == epoch && self.correct(&topology, slot, owner) {
            self.shared.on_moved(topology.version, slot, &owner.address);
        }
    }

    /// Corrects the owner of one slot. Returns false if the node was the owner already.
    fn correct(&self, topology: &Arc<Topology>, slot: Slot, owner: &Arc<Node>) -> bool {
        if topology
            .owner(slot)
            .is_some_and(|known| Arc::ptr_eq(known, owner))
        {
            return false;
        }
        if !topology.patch(slot, owner) {
            // A snapshot that was installed in the meantime stays: it is newer than this
            // correction.
            self.topology
                .compare_and_swap(topology, Arc::new(topology.with_owner(slot, owner)));
        }
        true
    }

    pub(crate) fn stats(&self) -> Stats {
        let nodes = self.nodes();
        let own = Stats {
            refreshes: self.refreshes.load(Relaxed),
            ..Stats::default()
        };
        nodes
            .serving
            .values()
            .chain(&nodes.leaving)
            .map(|node| node.stats())
            .chain([nodes.past, own])
            .sum()
    }

    pub(crate) fn close(&self) {
        let nodes = self.nodes();
        nodes
            .serving
            .values()
            .chain(&nodes.leaving)
            .for_each(|node| node.close());
    }

    fn nodes(&self) -> MutexGuard<'_, Nodes> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Installs a new snapshot from the shared view of this `version`.
    fn install(self: &Arc<Self>, version: u64, view: &View) {
        let epoch = self.topology.load().epoch + 1;
        let topology = Arc::new(Topology::new(epoch, version, view, |address| {
            self.node_at(address)
        }));
        if epoch == 1 {
            info!(
                nodes = topology.nodes.len(),
                slots = view.covered(),
                "topology learned"
            );
        }
        self.topology.store(topology);
        self.waiters.wake();
        let mut nodes = self.nodes();
        // A redirect may have added a node to the snapshot since.
        let removed = nodes.remove_unused(&self.topology());
        drop(nodes);
        for node in removed {
            node.leave();
            let cluster = self.clone();
            self.context.spawn(self.context.stop.clone(), async move {
                cluster.retire(node).await
            });
        }
    }

    /// Lets a node that left answer commands in flight, then closes it.
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
