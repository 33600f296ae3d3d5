//! Decides whether a unit whose commands did not run is sent again, and to which node.

use std::sync::Arc;
use std::time::{Duration, Instant};

use smallvec::SmallVec;

use super::Backend;
use crate::batch::{Batch, SlotState};
use crate::cluster::{Cluster, Topology, endpoint};
use crate::node::Node;
use crate::outcome::{NotSent, Outcome, Rejection};
use crate::wire::Slot;

/// Maximum number of redirects that one unit follows without a delay. Two nodes may name each other
/// while a slot moves.
const MAX_REDIRECTS: u32 = 5;

/// Maximum time of a failover. A node that is down for longer is not replaced any more: its callers
/// are refused at once, so that they do not accumulate. Redis Cluster replaces a node after 15 s by
/// default, and then needs about 2 s.
const MAX_FAILOVER_TIME: Duration = Duration::from_secs(30);

/// Time for which a unit waits for a read-only single server to accept writes, or for another
/// server at its address. It is short because neither may happen.
const READ_ONLY_TIMEOUT: Duration = Duration::from_secs(1);

/// A unit with commands that did not run.
pub(crate) struct UnfinishedUnit {
    pub(crate) unit: u32,
    /// Indices of the commands to send again, in order.
    pub(crate) commands: SmallVec<[usize; 2]>,
    /// Node of the last attempt.
    pub(crate) last_node: Option<Arc<Node>>,
    pub(crate) redirects: u32,
    /// Whether a command before these ran, which must not stay without them.
    pub(crate) begun: bool,
    /// Time of the first refusal of a single server that accepts no writes.
    pub(crate) read_only_since: Option<Instant>,
}

/// Next step for an unfinished unit.
pub(crate) enum Retry {
    /// Send it to this node, now.
    Redirect(Arc<Node>, SlotState),
    /// Send it to the owner of its slot, after a wait.
    Wait,
    /// Leave the outcome as it is.
    GiveUp,
}

impl UnfinishedUnit {
    /// Updates the unit after an attempt at `node`.
    pub(crate) fn on_attempt(
        &mut self,
        batch: &Batch,
        outcomes: &[Outcome],
        node: Option<&Arc<Node>>,
    ) {
        self.last_node = node.cloned();
        self.commands = batch.unfinished(self.unit, outcomes);
        self.begun = batch.has_begun(self.unit, outcomes);
    }

    /// Returns whether no usable node is known.
    pub(crate) fn lacks_owner(&self, outcomes: &[Outcome]) -> bool {
        let reason = &outcomes[self.commands[0]];
        matches!(
            reason,
            Outcome::NotSent(NotSent::NoOwner { .. } | NotSent::Unavailable { .. })
        )
    }

    /// Returns whether there is still no usable node, so that sending again now cannot succeed.
    pub(crate) fn still_lacks_owner(
        &self,
        topology: &Topology,
        batch: &Batch,
        outcomes: &[Outcome],
    ) -> bool {
        let owner = match batch.slot_of(self.unit) {
            Some(slot) => topology.owner(slot).filter(|node| !node.is_down()),
            None => topology.nodes.iter().find(|node| !node.is_down()),
        };
        owner.is_none() && self.lacks_owner(outcomes)
    }

    /// Ends the unit because the retry queue is full. Outcomes of commands that may have run stay.
    pub(crate) fn refuse(&self, outcomes: &mut [Outcome]) {
        for &command in &self.commands {
            let last = match &outcomes[command] {
                Outcome::NotSent(reason) => reason.to_string(),
                Outcome::Rejected(rejected) => rejected.to_string(),
                Outcome::Reply(_) | Outcome::ServerError(_) | Outcome::Unknown(_) => continue,
            };
            outcomes[command] = Outcome::NotSent(NotSent::RetriesOverloaded { last: last.into() });
        }
    }

    /// Decides by the first command that did not run: the commands of a unit share a key.
    pub(crate) fn retry(&mut self, backend: &Backend, outcomes: &[Outcome], epoch: u64) -> Retry {
        let reason = self
            .commands
            .iter()
            .map(|&command| &outcomes[command])
            .find(|outcome| !outcome.ran());
        match (backend, reason) {
            (Backend::Single(node), Some(outcome)) => self.retry_at_single(node, outcome),
            (Backend::Cluster(cluster), Some(outcome)) => {
                self.retry_in_cluster(cluster, outcome, epoch)
            }
            (_, None) => Retry::GiveUp,
        }
    }

    fn retry_in_cluster(&mut self, cluster: &Arc<Cluster>, outcome: &Outcome, epoch: u64) -> Retry {
        match outcome {
            Outcome::NotSent(NotSent::Unavailable { .. })
                if self
                    .last_node
                    .as_ref()
                    .is_some_and(|node| node.down_for() > MAX_FAILOVER_TIME) =>
            {
                Retry::GiveUp
            }
            Outcome::NotSent(_) | Outcome::Unknown(_) => {
                cluster.want_refresh();
                Retry::Wait
            }
            Outcome::Rejected(rejected) => match &rejected.kind {
                Rejection::Moved { slot, endpoint } => {
                    self.on_moved(cluster, *slot, endpoint, epoch)
                }
                Rejection::Ask { slot, endpoint } => self.on_ask_redirect(cluster, *slot, endpoint),
                kind => self.wait_in_cluster(cluster, kind),
            },
            Outcome::Reply(_) | Outcome::ServerError(_) => Retry::GiveUp,
        }
    }

    /// Handles MOVED: another node owns the slot. The topology is corrected, and the unit goes to
    /// the new owner.
    fn on_moved(&mut self, cluster: &Arc<Cluster>, slot: u16, endpoint: &str, epoch: u64) -> Retry {
        let Some(last_node) = self.last_node.clone() else {
            return Retry::GiveUp;
        };
        let Some((slot, node)) = self.redirect_target(cluster, &last_node, slot, endpoint) else {
            return Retry::Wait;
        };
        cluster.on_moved(slot, &node, epoch);
        // A node that names itself is another server behind the same address: only a new connection
        // finds it.
        if Arc::ptr_eq(&node, &last_node) {
            node.renew();
            return Retry::Wait;
        }
        Retry::Redirect(node, SlotState::Owned)
    }

    /// Handles ASK: the slot is moving, and its keys are at the other node already. The topology
    /// stays.
    fn on_ask_redirect(&mut self, cluster: &Arc<Cluster>, slot: u16, endpoint: &str) -> Retry {
        let Some(last_node) = self.last_node.clone() else {
            return Retry::GiveUp;
        };
        match self.redirect_target(cluster, &last_node, slot, endpoint) {
            Some((_, node)) => Retry::Redirect(node, SlotState::Importing),
            None => Retry::Wait,
        }
    }

    /// Returns the slot and the node that a redirect names. `None` if it cannot be followed now.
    fn redirect_target(
        &mut self,
        cluster: &Arc<Cluster>,
        last_node: &Node,
        slot: u16,
        text: &str,
    ) -> Option<(Slot, Arc<Node>)> {
        self.redirects += 1;
        let named = if self.redirects <= MAX_REDIRECTS {
            endpoint(text, &last_node.address).and_then(|address| cluster.node_named(address))
        } else {
            None
        };
        if named.is_none() {
            cluster.want_refresh();
        }
        Slot::new(slot).zip(named)
    }

    fn wait_in_cluster(&self, cluster: &Cluster, kind: &Rejection) -> Retry {
        if matches!(kind, Rejection::ClusterDown | Rejection::ReadOnly) {
            cluster.want_refresh();
        }
        // The address may move to a new primary, which only a new connection finds. A new
        // connection also authenticates again.
        if let (Rejection::ReadOnly | Rejection::Unauthenticated, Some(node)) =
            (kind, &self.last_node)
        {
            node.renew();
        }
        Retry::Wait
    }

    /// Decides for a single server: no other server can take over, and there is none to redirect
    /// to.
    fn retry_at_single(&mut self, node: &Arc<Node>, outcome: &Outcome) -> Retry {
        match outcome {
            Outcome::NotSent(NotSent::Unavailable { .. }) if !self.begun => Retry::GiveUp,
            Outcome::Reply(_) | Outcome::ServerError(_) => Retry::GiveUp,
            Outcome::NotSent(_) | Outcome::Unknown(_) => Retry::Wait,
            Outcome::Rejected(rejected) => match rejected.kind {
                Rejection::Moved { .. } | Rejection::Ask { .. } => Retry::GiveUp,
                Rejection::ReadOnly if self.is_read_only_for_long() => Retry::GiveUp,
                Rejection::ReadOnly | Rejection::Unauthenticated => {
                    node.renew();
                    Retry::Wait
                }
                _ => Retry::Wait,
            },
        }
    }

    fn is_read_only_for_long(&mut self) -> bool {
        !self.begun
            && self
                .read_only_since
                .get_or_insert_with(Instant::now)
                .elapsed()
                >= READ_ONLY_TIMEOUT
    }
}
