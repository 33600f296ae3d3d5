//! Writes that the store began and did not finish. What adds comes before the state, and what removes after it, so whichever state
//! counts has all of its rows. Rows that should not be there may be left over: all rows are written again, and these are removed.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hashbrown::HashMap;

use crate::codec::change::{Change, Delete, Write};
use crate::codec::rows::Row;
use crate::id::WorkflowId;
use crate::time::Timestamp;

/// How often what is torn is tried to be mended, beside every other write of these workflows.
const REPAIR_INTERVAL: Duration = Duration::from_secs(5);
/// The most workflows of a partition that are remembered. `tidegate store check` finds the others.
const MOST: usize = 4_096;

/// The workflows of a partition whose rows may not be those of their state.
#[derive(Debug, Default)]
pub(crate) struct PartialWrites(Mutex<PartialWriteTable>);

#[derive(Debug, Default)]
struct PartialWriteTable {
    /// Each with what may be there and should not.
    each: HashMap<WorkflowId, Delete>,
    tried: Option<Timestamp>,
}

impl PartialWrites {
    fn known(&self) -> MutexGuard<'_, PartialWriteTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A change was not written as a whole.
    pub(super) fn note(&self, change: &Change) {
        let mut known = self.known();
        if known.each.len() >= MOST && !known.each.contains_key(&change.workflow) {
            return;
        }
        let strays = known.each.entry(change.workflow).or_default();
        if let Write::Put(put) = &change.write {
            strays
                .ready
                .extend(put.ready.add.iter().chain(&put.ready.remove).cloned());
            strays
                .index
                .extend(put.index.add.iter().chain(&put.index.remove).cloned());
            strays.idempotency_key = put
                .birth
                .as_ref()
                .and_then(|birth| birth.idempotency_key.clone());
        }
        if let Write::Delete(delete) = &change.write {
            strays.ready.extend(delete.ready.iter().cloned());
            strays.index.extend(delete.index.iter().cloned());
        }
    }

    /// The rows of a workflow are not those of its state; these should not be there.
    pub(crate) fn note_rows(&self, workflow: WorkflowId, ready: &[Row], index: &[Row]) {
        let mut known = self.known();
        if known.each.len() < MOST || known.each.contains_key(&workflow) {
            let strays = known.each.entry(workflow).or_default();
            strays.ready.extend(ready.iter().cloned());
            strays.index.extend(index.iter().cloned());
        }
    }

    /// What may be there of a workflow and should not. None: its rows are those of its state.
    pub(crate) fn orphan_rows(&self, workflow: WorkflowId) -> Option<Delete> {
        let known = self.known();
        if known.each.is_empty() {
            None
        } else {
            known.each.get(&workflow).cloned()
        }
    }

    /// All rows of a workflow were written, or it is gone with all of them.
    pub(crate) fn repaired(&self, workflow: WorkflowId) {
        let mut known = self.known();
        if !known.each.is_empty() {
            known.each.remove(&workflow);
        }
    }

    /// Whether there are none.
    pub(crate) fn is_none(&self) -> bool {
        self.known().each.is_empty()
    }

    /// Workflows to mend now, at most `most` and every 5 s.
    pub(crate) fn due(&self, now: Timestamp, most: usize) -> Vec<WorkflowId> {
        let mut known = self.known();
        if most == 0
            || known.each.is_empty()
            || known
                .tried
                .is_some_and(|tried| now.since(tried) < REPAIR_INTERVAL)
        {
            return Vec::new();
        }
        known.tried = Some(now);
        known.each.keys().take(most).copied().collect()
    }
}
