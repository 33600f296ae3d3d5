//! Splits a batch by the nodes that own its keys.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::batch::Batch;
use crate::batch::load::Load;
use crate::call::units::UnitSet;
use crate::config::grouping::Grouping;
use crate::node::Node;

/// A larger group is cut here, between units, so that other callers' commands get between its parts and the server's
/// replies stay small.
const LARGEST_GROUP: Load = Load {
    commands: 512,
    bytes: 256 * 1024,
};

/// The groups of a batch, and the node of each, in two lists of the same order.
#[derive(Debug, Default)]
pub(crate) struct Route {
    pub(crate) groups: SmallVec<[UnitSet; 1]>,
    pub(crate) nodes: SmallVec<[Arc<Node>; 1]>,
}

impl Route {
    /// Groups the units of a batch, in the order in which groups first appear. Units without an owner are left out.
    ///
    /// The nodes of a batch are few, so a search through the groups is faster than a map.
    pub(crate) fn split<'a>(
        batch: &Batch,
        grouping: Grouping,
        mut owner: impl FnMut(u32) -> Option<&'a Arc<Node>>,
    ) -> Self {
        let mut route = Self::default();
        for unit in 0..batch.units.len() as u32 {
            let load = batch.load_of(unit);
            let Some(node) = owner(unit) else { continue };
            match route.last_group(node, |first| travel_together(batch, grouping, first, unit)) {
                Some(group) if group.load.fits(load, LARGEST_GROUP) => group.push(unit, load),
                _ => {
                    let mut group = UnitSet::default();
                    group.push(unit, load);
                    route.groups.push(group);
                    route.nodes.push(Arc::clone(node));
                }
            }
        }
        route
    }

    /// The last group of a node whose first unit satisfies `joins`.
    fn last_group(
        &mut self,
        node: &Arc<Node>,
        joins: impl Fn(u32) -> bool,
    ) -> Option<&mut UnitSet> {
        let same_node = self
            .groups
            .iter_mut()
            .zip(&self.nodes)
            .filter(|(_, other)| Arc::ptr_eq(other, node));
        same_node
            .map(|(group, _)| group)
            .rfind(|group| group.first().is_some_and(&joins))
    }
}

/// The parts of one group, as indices into the groups of a call.
pub(crate) type GroupParts = SmallVec<[usize; 1]>;

/// The groups as they were before large ones were cut, in the order of their first parts.
pub(crate) fn whole_groups(
    batch: &Batch,
    parts: &[UnitSet],
    nodes: &[Arc<Node>],
    grouping: Grouping,
) -> SmallVec<[GroupParts; 4]> {
    let mut groups: SmallVec<[GroupParts; 4]> = SmallVec::new();
    let belong_together = |one: usize, other: usize| {
        let units = parts[one].first().zip(parts[other].first());
        let same_node = Arc::ptr_eq(&nodes[one], &nodes[other]);
        same_node && units.is_some_and(|(one, other)| travel_together(batch, grouping, one, other))
    };
    for part in 0..parts.len() {
        match groups
            .iter_mut()
            .find(|group| belong_together(group[0], part))
        {
            Some(group) => group.push(part),
            None => groups.push(GroupParts::from_elem(part, 1)),
        }
    }
    groups
}

/// Whether two units of one node belong to one group.
fn travel_together(batch: &Batch, grouping: Grouping, one: u32, other: u32) -> bool {
    match grouping {
        Grouping::Node => true,
        Grouping::Slot => batch.slot_of(one) == batch.slot_of(other),
        Grouping::Key => batch.key_of(one) == batch.key_of(other),
    }
}
