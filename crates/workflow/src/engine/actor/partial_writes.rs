//! Writes that the store began and did not finish. Rows are added before the state is written, and
//! removed after it. So the state that counts has all of its rows, but others may be left over. A
//! repair writes all rows again and removes the others.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hashbrown::HashMap;

use crate::codec::change::{Change, Delete, Write};
use crate::codec::rows::Row;
use crate::id::WorkflowId;
use crate::time::Timestamp;

/// Least time between repairs of one partition. Every other write of such a workflow repairs it,
/// too.
const REPAIR_INTERVAL: Duration = Duration::from_secs(5);
/// Most workflows of a partition that are recorded. `tidegate store check` finds the others.
const MOST: usize = 4_096;

/// The workflows of a partition whose rows may not match their state.
#[derive(Debug, Default)]
pub(crate) struct PartialWrites(Mutex<PartialWriteTable>);

#[derive(Debug, Default)]
struct PartialWriteTable {
    /// Rows of each workflow that may be in the store and should not.
    each: HashMap<WorkflowId, Delete>,
    tried: Option<Timestamp>,
}

impl PartialWrites {
    fn known(&self) -> MutexGuard<'_, PartialWriteTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a change that was not written as a whole.
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

    /// Records rows that are in the store and should not.
    pub(crate) fn note_rows(&self, workflow: WorkflowId, ready: &[Row], index: &[Row]) {
        let mut known = self.known();
        if known.each.len() < MOST || known.each.contains_key(&workflow) {
            let strays = known.each.entry(workflow).or_default();
            strays.ready.extend(ready.iter().cloned());
            strays.index.extend(index.iter().cloned());
        }
    }

    /// Returns the rows of a workflow that may be in the store and should not. `None` if its rows
    /// match its state.
    pub(crate) fn orphan_rows(&self, workflow: WorkflowId) -> Option<Delete> {
        let known = self.known();
        if known.each.is_empty() {
            None
        } else {
            known.each.get(&workflow).cloned()
        }
    }

    /// Forgets a workflow whose rows were all written again, or that was deleted with all of them.
    pub(crate) fn repaired(&self, workflow: WorkflowId) {
        let mut known = self.known();
        if !known.each.is_empty() {
            known.each.remove(&workflow);
        }
    }

    /// Whether no workflow is recorded.
    pub(crate) fn is_none(&self) -> bool {
        self.known().each.is_empty()
    }

    /// Returns at most `max` workflows to repair now. There are none within 5 s after a repair.
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
