//! Writes that the store began and did not finish. Rows are added before the state is written, and
//! removed after it. So the state that counts has all of its rows, but others may be left over. A
//! repair writes all rows again and removes the others.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hashbrown::HashMap;

use crate::codec::change::{Change, Delete, Write};
use crate::codec::rows::Row;
use crate::model::id::WorkflowId;
use crate::model::time::Timestamp;

/// Least time between repairs of one partition. Every other write of such a workflow repairs it,
/// too.
const REPAIR_INTERVAL: Duration = Duration::from_secs(5);
/// Most workflows of a partition that are recorded. `tidegate store check` finds the others.
const MAX_WORKFLOWS: usize = 4_096;

/// The workflows of a partition whose rows may not match their state.
#[derive(Debug, Default)]
pub(crate) struct PartialWrites(Mutex<PartialWriteTable>);

#[derive(Debug, Default)]
struct PartialWriteTable {
    /// Rows of each workflow that may be in the store and should not.
    orphans_by_workflow: HashMap<WorkflowId, Delete>,
    repaired_at: Option<Timestamp>,
}

impl PartialWrites {
    fn table(&self) -> MutexGuard<'_, PartialWriteTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a change that was not written as a whole.
    pub(super) fn record(&self, change: &Change) {
        let mut table = self.table();
        if table.orphans_by_workflow.len() >= MAX_WORKFLOWS
            && !table.orphans_by_workflow.contains_key(&change.workflow)
        {
            return;
        }
        let orphans = table
            .orphans_by_workflow
            .entry(change.workflow)
            .or_default();
        if let Write::Put(put) = &change.write {
            orphans
                .ready
                .extend(put.ready.add.iter().chain(&put.ready.remove).cloned());
            orphans
                .index
                .extend(put.index.add.iter().chain(&put.index.remove).cloned());
            orphans.idempotency_key = put
                .creation
                .as_ref()
                .and_then(|birth| birth.idempotency_key.clone());
        }
        if let Write::Delete(delete) = &change.write {
            orphans.ready.extend(delete.ready.iter().cloned());
            orphans.index.extend(delete.index.iter().cloned());
        }
    }

    /// Records rows that are in the store and should not.
    pub(crate) fn record_rows(&self, workflow: WorkflowId, ready: &[Row], index: &[Row]) {
        let mut table = self.table();
        if table.orphans_by_workflow.len() < MAX_WORKFLOWS
            || table.orphans_by_workflow.contains_key(&workflow)
        {
            let orphans = table.orphans_by_workflow.entry(workflow).or_default();
            orphans.ready.extend(ready.iter().cloned());
            orphans.index.extend(index.iter().cloned());
        }
    }

    /// Returns the rows of a workflow that may be in the store and should not. `None` if its rows
    /// match its state.
    pub(crate) fn orphan_rows(&self, workflow: WorkflowId) -> Option<Delete> {
        let table = self.table();
        if table.orphans_by_workflow.is_empty() {
            None
        } else {
            table.orphans_by_workflow.get(&workflow).cloned()
        }
    }

    /// Forgets a workflow whose rows were all written again, or that was deleted with all of them.
    pub(crate) fn repaired(&self, workflow: WorkflowId) {
        let mut table = self.table();
        if !table.orphans_by_workflow.is_empty() {
            table.orphans_by_workflow.remove(&workflow);
        }
    }

    /// Whether no workflow is recorded.
    pub(crate) fn is_empty(&self) -> bool {
        self.table().orphans_by_workflow.is_empty()
    }

    /// Returns at most `max` workflows to repair now. There are none within 5 s after a repair.
    pub(crate) fn due(&self, now: Timestamp, max: usize) -> Vec<WorkflowId> {
        let mut table = self.table();
        if max == 0
            || table.orphans_by_workflow.is_empty()
            || table
                .repaired_at
                .is_some_and(|repaired_at| now.since(repaired_at) < REPAIR_INTERVAL)
        {
            return Vec::new();
        }
        table.repaired_at = Some(now);
        table
            .orphans_by_workflow
            .keys()
            .take(max)
            .copied()
            .collect()
    }
}
