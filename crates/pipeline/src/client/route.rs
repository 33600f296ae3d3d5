//! Splits a batch by the nodes that own its keys.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::batch::Batch;
use crate::call::{Load, Plan};
use crate::node::Node;

/// A larger group is cut here, at unit boundaries, so that other callers get between and the server's replies stay small.
const CHUNK: Load = Load { commands: 512, bytes: 256 * 1024 };

/// Which units of a batch travel together.
///
/// Older clients group by slot or by key, and then pay a round trip for each group where they send one after the other.
/// Those two are here to be measured against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Grouping {
    /// All that one node owns.
    #[default]
    Node,
    /// All of one hash slot.
    Slot,
    /// All of one key.
    Key,
}

/// Groups the units of a batch, in the order in which groups first appear. Units without an owner are left out.
///
/// The nodes of a batch are few, so a search through the groups beats a map.
pub(crate) fn split<'a>(
    batch: &Batch,
    grouping: Grouping,
    mut owner: impl FnMut(u32) -> Option<&'a Arc<Node>>,
) -> SmallVec<[Plan; 1]> {
    let mut plans: SmallVec<[Plan; 1]> = SmallVec::new();
    for unit in 0..batch.units.len() as u32 {
        let load = batch.load_of(unit);
        let Some(node) = owner(unit) else { continue };
        let together = |plan: &&mut Plan| {
            let other = plan.units[0].start;
            Arc::ptr_eq(&plan.node, node)
                && match grouping {
                    Grouping::Node => true,
                    Grouping::Slot => batch.slot_of(other) == batch.slot_of(unit),
                    Grouping::Key => batch.key_of(other) == batch.key_of(unit),
                }
        };
        match plans.iter_mut().rfind(together) {
            Some(plan) if plan.load.fits(load, CHUNK) => plan.push(unit, load),
            _ => {
                let mut plan = Plan::new(Arc::clone(node));
                plan.push(unit, load);
                plans.push(plan);
            }
        }
    }
    plans
}
