//! A snapshot of the owners of slots.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

use super::View;
use crate::config::Address;
use crate::node::Node;
use crate::wire::{SLOTS, Slot};

/// Owner index of a slot that no node owns.
const NO_OWNER: u16 = u16::MAX;

/// One view of the cluster. It is replaced as a whole, except for single slots that a redirect
/// corrects.
#[derive(Debug)]
pub(crate) struct Topology {
    /// Number of this snapshot among those of one client.
    pub(crate) epoch: u64,
    /// Version of the shared view that the snapshot began with.
    pub(crate) version: u64,
    /// Epoch of the cluster in that view, see [`View::cluster_epoch`].
    pub(crate) cluster_epoch: Option<u64>,
    pub(crate) nodes: Vec<Arc<Node>>,
    /// Index into `nodes` for each slot, or [`NO_OWNER`].
    owners: Box<[AtomicU16]>,
}

impl Topology {
    pub(crate) fn empty() -> Self {
        let owners = (0..SLOTS).map(|_| AtomicU16::new(NO_OWNER)).collect();
        Self {
            epoch: 0,
            version: 0,
            cluster_epoch: None,
            nodes: Vec::new(),
            owners,
        }
    }

    pub(crate) fn has_node(&self, address: &Address) -> bool {
        self.nodes.iter().any(|node| node.address == *address)
    }

    pub(crate) fn new(
        epoch: u64,
        version: u64,
        view: &View,
        mut node_at: impl FnMut(&Address) -> Arc<Node>,
    ) -> Self {
        let mut topology = Self {
            epoch,
            version,
            cluster_epoch: view.cluster_epoch,
            ..Self::empty()
        };
        for (slots, address) in &view.ranges {
            let index = topology.index_of(&node_at(address));
            for slot in slots.clone() {
                topology.owners[usize::from(slot)].store(index, Relaxed);
            }
        }
        topology
    }

    /// Returns the owner of a slot.
    pub(crate) fn owner(&self, slot: Slot) -> Option<&Arc<Node>> {
        self.nodes
            .get(usize::from(self.owners[slot.index()].load(Relaxed)))
    }

    /// Returns the number of slots that have an owner.
    pub(crate) fn covered(&self) -> usize {
        self.owners
            .iter()
            .filter(|owner| owner.load(Relaxed) != NO_OWNER)
            .count()
    }

    /// Returns the number of nodes that own a slot.
    pub(crate) fn owner_count(&self) -> usize {
        let mut owns = vec![false; self.nodes.len()];
        for owner in &self.owners {
            if let Some(owns) = owns.get_mut(usize::from(owner.load(Relaxed))) {
                *owns = true;
            }
        }
        owns.into_iter().filter(|owns| *owns).count()
    }

    /// Assigns a slot to a node of this snapshot. Returns false if the node is not in it.
    pub(crate) fn patch(&self, slot: Slot, node: &Arc<Node>) -> bool {
        let known = self.nodes.iter().position(|known| Arc::ptr_eq(known, node));
        if let Some(index) = known {
            self.owners[slot.index()].store(index as u16, Relaxed);
        }
        known.is_some()
    }

    /// Returns a copy in which `node` owns `slot`.
    pub(crate) fn with_owner(&self, slot: Slot, node: &Arc<Node>) -> Self {
        let owners = self
            .owners
            .iter()
            .map(|owner| AtomicU16::new(owner.load(Relaxed)))
            .collect();
        let epoch = self.epoch + 1;
        let nodes = self.nodes.clone();
        let mut copy = Self {
            epoch,
            version: self.version,
            cluster_epoch: self.cluster_epoch,
            nodes,
            owners,
        };
        let index = copy.index_of(node);
        copy.owners[slot.index()].store(index, Relaxed);
        copy
    }

    fn index_of(&mut self, node: &Arc<Node>) -> u16 {
        let known = self.nodes.iter().position(|known| Arc::ptr_eq(known, node));
        let index = known.unwrap_or_else(|| {
            self.nodes.push(node.clone());
            self.nodes.len() - 1
        });
        u16::try_from(index).expect("a cluster has fewer primaries than slots")
    }
}
