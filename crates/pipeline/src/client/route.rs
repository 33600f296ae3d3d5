//! Splits a batch by the nodes that own its keys.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::batch::{Batch, Load};
use crate::call::UnitSet;
use crate::node::Node;

/// Maximum load of a group. A larger one is split between units, so that commands of other callers
/// run between its parts and replies stay small.
const MAX_GROUP_LOAD: Load = Load {
    commands: 512,
    bytes: 256 * 1024,
};

/// The groups of a batch and the node of each, in two lists of the same order.
#[derive(Debug, Default)]
pub(crate) struct Route {
    pub(crate) groups: SmallVec<[UnitSet; 1]>,
    pub(crate) nodes: SmallVec<[Arc<Node>; 1]>,
}

impl Route {
    /// Groups the units of a batch, in the order in which groups first appear. Units without an
    /// owner are left out.
    ///
    /// The nodes of a batch are few, so a search through the groups is faster than a map.
    pub(crate) fn split<'a>(
        batch: &Batch,
        mut owner: impl FnMut(u32) -> Option<&'a Arc<Node>>,
    ) -> Self {
        let mut route = Self::default();
        for unit in 0..batch.units.len() as u32 {
            let load = batch.load_of(unit);
            let Some(node) = owner(unit) else { continue };
            match route.last_group(node) {
                Some(group) if group.load.fits(load, MAX_GROUP_LOAD) => group.push(unit, load),
                _ => {
                    let mut group = UnitSet::default();
                    group.push(unit, load);
                    route.groups.push(group);
                    route.nodes.push(node.clone());
                }
            }
        }
        route
    }

    /// Returns the last group of a node.
    fn last_group(&mut self, node: &Arc<Node>) -> Option<&mut UnitSet> {
        let at = self
            .nodes
            .iter()
            .rposition(|other| Arc::ptr_eq(other, node))?;
        Some(&mut self.groups[at])
    }
}

/// The parts of one group, as indices into the groups of a call.
pub(crate) type GroupParts = SmallVec<[usize; 1]>;

/// Joins the parts of groups that were split, in the order of their first parts. `nodes` has the
/// node of each part.
pub(crate) fn whole_groups(nodes: &[Arc<Node>]) -> SmallVec<[GroupParts; 4]> {
    let mut groups: SmallVec<[GroupParts; 4]> = SmallVec::new();
    for (part, node) in nodes.iter().enumerate() {
        match groups
            .iter_mut()
            .find(|group| Arc::ptr_eq(&nodes[group[0]], node))
        {
            Some(group) => group.push(part),
            None => groups.push(GroupParts::from_elem(part, 1)),
        }
    }
    groups
}
