//! A Redis Cluster: its nodes, the snapshot of who owns what, and the task that keeps the snapshot fresh.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::{info, warn};

use crate::batch::{Arg, Batch};
use crate::config::Address;
use crate::handshake;
use crate::node::Node;
use crate::outcome::Outcome;
use crate::shared::Shared;
use crate::slot::Slot;
use crate::stats::Stats;
use crate::topology::{Topology, View};

/// A snapshot is renewed this often even when nothing calls for it, give or take a fifth.
const REFRESH_EVERY: Duration = Duration::from_secs(30);

/// Least time between two refreshes: redirects correct the snapshot meanwhile, slot by slot.
const REFRESH_AT_MOST_EVERY: Duration = Duration::from_secs(1);

/// Before the first snapshot there is nothing to fall back on, so the wait is short.
const FIRST_REFRESH_AGAIN: Duration = Duration::from_millis(100);

/// How many servers are asked before a view that no second one confirms is believed.
const OPINIONS: usize = 3;

/// A node that left the cluster finishes what it owes within this time.
const LINGER: Duration = Duration::from_secs(5);

/// A cluster.
#[derive(Debug)]
pub(crate) struct Cluster {
    seeds: Vec<Address>,
    shared: Arc<Shared>,
    topology: ArcSwap<Topology>,
    nodes: Mutex<HashMap<Address, Arc<Node>>>,
    /// Told at every new snapshot.
    renewed: Notify,
}

impl Cluster {
    pub(crate) fn start(seeds: Vec<Address>, shared: &Arc<Shared>) -> Arc<Self> {
        let cluster = Arc::new(Self {
            seeds,
            shared: Arc::clone(shared),
            topology: ArcSwap::from_pointee(Topology::empty()),
            nodes: Mutex::new(HashMap::new()),
            renewed: Notify::new(),
        });
        let refresher = Arc::clone(&cluster);
        shared.spawn(shared.stop.clone(), async move { refresher.keep_fresh().await });
        cluster
    }

    pub(crate) fn topology(&self) -> arc_swap::Guard<Arc<Topology>> {
        self.topology.load()
    }

    /// Asks for a new snapshot soon. Any number of calls cost one refresh, and nobody waits for it.
    pub(crate) fn want_refresh(&self) {
        self.shared.trouble.notify_one();
    }

    /// Waits for the next snapshot.
    pub(crate) async fn renewed(&self) {
        self.renewed.notified().await;
    }

    /// The node at an address; made when it is new.
    pub(crate) fn node_at(&self, address: &Address) -> Arc<Node> {
        let mut nodes = self.nodes();
        if let Some(node) = nodes.get(address) {
            return Arc::clone(node);
        }
        let node = Node::new(address.clone(), &self.shared);
        nodes.insert(address.clone(), Arc::clone(&node));
        node
    }

    /// Corrects the owner of one slot, as a redirect told it to a caller that used the snapshot of `epoch`.
    pub(crate) fn moved(&self, slot: Slot, owner: &Arc<Node>, epoch: u64) {
        self.want_refresh();
        let topology = self.topology.load();
        // News about an older snapshot may be older than what the current one knows.
        if topology.epoch == epoch && !topology.patch(slot, owner) {
            self.topology.store(Arc::new(topology.with_owner(slot, owner)));
        }
    }

    pub(crate) fn stats(&self) -> Stats {
        self.nodes().values().map(|node| node.stats()).sum()
    }

    pub(crate) fn close(&self) {
        for node in self.nodes().values() {
            node.close();
        }
    }

    fn nodes(&self) -> MutexGuard<'_, HashMap<Address, Arc<Node>>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn keep_fresh(&self) {
        loop {
            let started = Instant::now();
            let known = self.refresh().await;
            let (at_least, at_most) = match known {
                true => (REFRESH_AT_MOST_EVERY, REFRESH_EVERY.mul_f64(0.8 + 0.4 * fastrand::f64())),
                false => (FIRST_REFRESH_AGAIN, FIRST_REFRESH_AGAIN),
            };
            // Many clients see the same move at the same time; up to a tenth of a second spreads them out.
            sleep_until(started + at_least + Duration::from_millis(fastrand::u64(..100))).await;
            let _ = timeout(at_most, self.shared.trouble.notified()).await;
        }
    }

    /// Takes a new snapshot. False while there has never been one.
    async fn refresh(&self) -> bool {
        let mut views: Vec<View> = Vec::new();
        let mut agreed = None;
        for address in self.sources() {
            let Some(view) = self.ask(&address).await else { continue };
            if views.contains(&view) {
                agreed = Some(view);
                break;
            }
            views.push(view);
            if views.len() == OPINIONS {
                break;
            }
        }
        // Without two that agree, the one that knows owners for most slots has most likely seen the latest change.
        let view = agreed.or_else(|| views.into_iter().max_by_key(View::covered));
        if let Some(view) = view.filter(|view| view.covered() > 0) {
            self.install(&view).await;
        }
        self.topology.load().epoch > 0
    }

    /// Whom to ask: the nodes in use in random order, then the seeds, which are remembered for ever.
    fn sources(&self) -> Vec<Address> {
        let mut sources: Vec<Address> = self.topology.load().nodes.iter().map(|node| node.address.clone()).collect();
        fastrand::shuffle(&mut sources);
        let new = self.seeds.iter().filter(|seed| !sources.contains(seed)).cloned().collect::<Vec<_>>();
        sources.extend(new);
        sources
    }

    /// Asks one server on a connection of its own: no caller's reply waits behind a long list, and no busy or stuck
    /// connection delays the news.
    async fn ask(&self, address: &Address) -> Option<View> {
        let mut question = Batch::new();
        question.unit().command("CLUSTER", &[Arg::Bytes(b"SLOTS")]);
        let answer = handshake::ask(address, &self.shared, &question).await;
        match answer {
            Ok(Outcome::Reply(reply)) => View::read(&reply, address),
            Ok(_) => None,
            Err(error) => {
                warn!(node = %address, error, "cannot ask for the cluster's slots");
                None
            }
        }
    }

    async fn install(&self, view: &View) {
        let epoch = self.topology.load().epoch + 1;
        let topology = Arc::new(Topology::new(epoch, view, |address| self.node_at(address)));
        if epoch == 1 {
            info!(nodes = topology.nodes.len(), slots = view.covered(), "cluster topology learned");
        }
        let in_use: Vec<Address> = topology.nodes.iter().map(|node| node.address.clone()).collect();
        self.topology.store(topology);
        self.renewed.notify_waiters();
        let gone: Vec<Arc<Node>> =
            self.nodes().extract_if(|address, _| !in_use.contains(address)).map(|(_, node)| node).collect();
        for node in gone {
            self.shared.spawn(self.shared.stop.clone(), retire(node));
        }
    }
}

/// Lets a node that left the cluster finish what it owes, then closes it.
async fn retire(node: Arc<Node>) {
    sleep(LINGER).await;
    node.close();
}
