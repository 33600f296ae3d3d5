//! Splits a batch by the nodes that own its keys.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::batch::Batch;
use crate::call::{Load, Plan};
use crate::node::Node;

/// A larger group is cut here, at unit boundaries, so that other callers get between and the server's replies stay small.
const CHUNK: Load = Load { commands: 512, bytes: 256 * 1024 };

/// Groups the units of a batch by node, in the order in which nodes first appear. Units without an owner are left out.
///
/// The nodes of a batch are few, so a search through the groups beats a map.
pub(crate) fn split<'a>(batch: &Batch, mut owner: impl FnMut(u32) -> Option<&'a Arc<Node>>) -> SmallVec<[Plan; 1]> {
    let mut plans: SmallVec<[Plan; 1]> = SmallVec::new();
    for unit in 0..batch.units.len() as u32 {
        let load = batch.load_of(unit);
        let Some(node) = owner(unit) else { continue };
        match plans.iter_mut().rfind(|plan| Arc::ptr_eq(&plan.node, node)) {
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
