//! Writes that the store began and did not finish. Rows are added before the state is written, and
//! removed after it. So the state that counts has all of its rows, but others may be left over. A
//! repair writes all rows again and removes the others.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hashbrown::HashMap;

use crate::codec::{Change, Delete, Row, Write};
use crate::model::{Timestamp, WorkflowId};

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

impl PartialWriteTable {
    /// The orphan rows of a workflow, which is recorded if there is room. `None` if there is not.
    fn orphans_of(&mut self, workflow: WorkflowId) -> Option<&mut Delete> {
        let orphans = &mut self.orphans_by_workflow;
        let has_room = orphans.len() < MAX_WORKFLOWS || orphans.contains_key(&workflow);
        has_room.then(|| orphans.entry(workflow).or_default())
    }
}

impl PartialWrites {
    fn table(&self) -> MutexGuard<'_, PartialWriteTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a change that was not written as a whole.
    pub(super) fn record(&self, change: &Change) {
        let mut table = self.table();
        let Some(orphans) = table.orphans_of(change.workflow) else {
            return;
        };
        match &change.write {
            Write::Put(put) => {
                let ready = put.ready.add.iter().chain(&put.ready.remove);
                let index = put.index.add.iter().chain(&put.index.remove);
                orphans.ready.extend(ready.cloned());
                orphans.index.extend(index.cloned());
                let creation = put.creation.as_ref();
                orphans.idempotency_key =
                    creation.and_then(|creation| creation.idempotency_key.clone());
            }
            Write::Delete(delete) => {
                orphans.ready.extend(delete.ready.iter().cloned());
                orphans.index.extend(delete.index.iter().cloned());
            }
        }
    }

    /// Records rows that are in the store and should not.
    pub(crate) fn record_rows(&self, workflow: WorkflowId, ready: &[Row], index: &[Row]) {
        if let Some(orphans) = self.table().orphans_of(workflow) {
            orphans.ready.extend(ready.iter().cloned());
            orphans.index.extend(index.iter().cloned());
        }
    }

    /// Returns the rows of a workflow that may be in the store and should not. `None` if its rows
    /// match its state.
    pub(crate) fn orphan_rows(&self, workflow: WorkflowId) -> Option<Delete> {
        self.table().orphans_by_workflow.get(&workflow).cloned()
    }

    /// Forgets a workflow whose rows were all written again, or that was deleted with all of them.
    pub(crate) fn repaired(&self, workflow: WorkflowId) {
        self.table().orphans_by_workflow.remove(&workflow);
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
