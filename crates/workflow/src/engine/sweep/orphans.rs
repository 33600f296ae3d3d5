//! Removal of orphan rows: rows without a workflow, which remain when a store loses some of its
//! keys.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hashbrown::{HashMap, HashSet};

use super::SweepScope;
use crate::codec::change::{Applied, Change, Delete, Write};
use crate::codec::rows::{ReadyJob, Row};
use crate::engine::Engine;
use crate::engine::actor::request::Request;
use crate::engine::error::EngineError;
use crate::engine::store_health::StoreOperation;
use crate::id::{Partition, WorkflowId};
use crate::store::error::StoreError;
use crate::time::Timestamp;

/// Interval at which removed rows are logged.
const TOLD: Duration = Duration::from_secs(60);
/// Maximum workflows in the table; above it the table is cleared.
const MOST: usize = 16_384;
/// Workflows of one call of the store.
const TOGETHER: usize = 256;

/// Workflows that were due and did not exist, and removed rows that are not logged yet.
#[derive(Debug, Default)]
pub(crate) struct Gone(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// Workflows that were due in a sweep and did not exist.
    due: HashSet<WorkflowId>,
    /// Number of removals that are not logged yet.
    untold: u64,
    told: Option<Timestamp>,
}

impl Gone {
    fn known<T>(&self, with: impl FnOnce(&mut Known) -> T) -> T {
        with(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Records workflows that were due in a sweep and did not exist. A sweep reads only some
    /// partitions, so other workflows stay in the table.
    pub(super) fn note(&self, due: HashSet<WorkflowId>) {
        self.known(|known| {
            if known.due.len() + due.len() > MOST {
                known.due.clear();
            }
            known.due.extend(due);
        });
    }

    /// Counts removals. Returns the number to log, at most once a minute.
    fn count(&self, removed: u64, now: Timestamp) -> Option<u64> {
        self.known(|known| {
            known.untold += removed;
            let may = known.told.is_none_or(|told| now.since(told) >= TOLD);
            (known.untold > 0 && may).then(|| {
                known.told = Some(now);
                std::mem::take(&mut known.untold)
            })
        })
    }
}

impl Engine {
    /// Removes ready rows whose workflows are gone. If a workflow exists, its rows are written
    /// again from its state.
    pub(crate) async fn bury_rows(&self, rows: Vec<Row>) {
        let mut orphans: HashMap<WorkflowId, Delete> = HashMap::new();
        for row in rows {
            if let Some(entry) = ReadyJob::read(&row) {
                orphans.entry(entry.workflow).or_default().ready.push(row);
            }
        }
        self.bury(orphans).await;
    }

    /// Removes workflows from `due` that did not exist in an earlier sweep either, with their
    /// remaining rows. After the first sweep another server may just have removed a workflow.
    /// Returns their number.
    pub(super) async fn bury_known(
        &self,
        due: impl Iterator<Item = &mut Vec<(WorkflowId, Timestamp)>>,
    ) -> usize {
        let mut known = self
            .core
            .context
            .gone
            .known(|known| std::mem::take(&mut known.due));
        let mut orphans = HashMap::new();
        for due in due.filter(|_| !known.is_empty()) {
            orphans.extend(
                due.extract_if(.., |(id, _)| known.contains(id))
                    .map(|(id, _)| (id, Delete::default())),
            );
        }
        known.retain(|id| !orphans.contains_key(id));
        self.core.context.gone.note(known);
        let number = orphans.len();
        self.bury(orphans).await;
        number
    }

    /// Completes interrupted writes: rows of existing workflows are written again, rows of
    /// interrupted creations are removed.
    pub(super) async fn mend_torn(&self, serve: SweepScope, now: Timestamp) {
        let mut torn: Vec<WorkflowId> = Vec::new();
        for (partition, desk) in self.store().all_partitions().zip(&self.core.desks) {
            let most = serve.most(
                &self.core.context.troubles,
                partition,
                StoreOperation::Write,
            );
            torn.extend(desk.torn.due(now, most));
        }
        let requests = torn.iter().map(|&id| (id, Request::Mend)).collect();
        let mut orphans = HashMap::new();
        for (id, answer) in torn.iter().zip(self.request_all(requests, now).await) {
            match answer {
                Err(EngineError::NoWorkflow { .. }) => {
                    orphans.extend(self.strays(*id).map(|strays| (*id, strays)))
                }
                Err(error) => {
                    tracing::debug!(workflow = %id, %error, "the rows of a workflow could not be written again")
                }
                Ok(_) => {}
            }
        }
        self.bury(orphans).await;
    }

    fn strays(&self, id: WorkflowId) -> Option<Delete> {
        self.core.desks[usize::from(id.partition().0)]
            .torn
            .orphan_rows(id)
    }

    /// Removes the remains of workflows that are gone: these rows, and everything that is found
    /// without the state. Existing workflows, and those that cannot be removed now, are quarantined
    /// for a while.
    pub(super) async fn bury(&self, orphans: HashMap<WorkflowId, Delete>) {
        let removed = self.remove_left(orphans).await;
        if let Some(removed) = self.core.context.gone.count(removed, self.queues().now()) {
            tracing::warn!(
                removed,
                "the store had lost workflows that were ready or due: what was left of them is removed"
            );
        }
    }

    /// Works as [`Engine::remove_orphans`], without a log message. Returns the number of workflows
    /// with removals.
    pub(super) async fn remove_left(&self, orphans: HashMap<WorkflowId, Delete>) -> u64 {
        let mut changes: HashMap<Partition, Vec<Change>> = HashMap::new();
        for (workflow, delete) in orphans {
            let small = workflow.is_small();
            let change = Change {
                workflow,
                expected: None,
                small,
                write: Write::Delete(Box::new(delete)),
            };
            changes
                .entry(workflow.partition())
                .or_default()
                .push(change);
        }
        let mut removed = 0;
        for (partition, changes) in changes {
            for some in changes.chunks(TOGETHER) {
                removed += self.bury_some(partition, some).await;
            }
        }
        removed
    }

    /// Returns the number of removals.
    async fn bury_some(&self, partition: Partition, changes: &[Change]) -> u64 {
        let applied = self.store().apply(partition, changes).await;
        // An answer that a workflow exists does not prove that removals work.
        if applied
            .as_ref()
            .map_or(true, |applied| applied.contains(&Applied::Done))
        {
            self.core
                .context
                .troubles
                .note(partition, StoreOperation::Removal, applied.as_ref());
        }
        let torn = &self.core.desks[usize::from(partition.0)].torn;
        let mut removed = 0;
        let mut there = Vec::new();
        for (at, change) in changes.iter().enumerate() {
            let Write::Delete(delete) = &change.write else {
                continue;
            };
            match applied.as_ref().map(|applied| &applied[at]) {
                Ok(Applied::Done) => {
                    removed += 1;
                    torn.repaired(change.workflow);
                    self.queues().change(&delete.ready, &[]);
                }
                Ok(Applied::Conflict(Some(_)) | Applied::Elsewhere) if !delete.ready.is_empty() => {
                    torn.note_rows(change.workflow, &delete.ready, &[]);
                    there.push(change.workflow);
                }
                // The workflow exists, and its due work does not depend on this removal.
                Ok(Applied::Conflict(Some(_)) | Applied::Elsewhere) => {}
                Err(
                    StoreError::Unavailable { .. }
                    | StoreError::Unknown { .. }
                    | StoreError::Torn { .. },
                ) => {
                    self.queues().add_until_store_works(change.workflow);
                }
                _ => _ = self.queues().put_aside(change.workflow),
            }
        }
        self.mend(there).await;
        removed
    }

    /// Writes the rows of workflows again. Workflows that cannot be written now are quarantined.
    async fn mend(&self, workflows: Vec<WorkflowId>) {
        let requests = workflows.iter().map(|&id| (id, Request::Mend)).collect();
        for (id, answer) in workflows
            .iter()
            .zip(self.request_all(requests, self.queues().now()).await)
        {
            match answer {
                Ok(_) => {}
                Err(EngineError::Store(StoreError::Corrupt { .. })) => {
                    _ = self.queues().put_aside(*id)
                }
                Err(_) => self.queues().add_until_store_works(*id),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removals_are_logged_once_a_minute_with_their_number() {
        let gone = Gone::default();
        let at = |seconds: u64| Timestamp::from_micros(seconds * 1_000_000);
        let told: Vec<Option<u64>> = [(0, 0), (3, 1), (2, 2), (1, 60), (4, 61), (0, 200)]
            .map(|(removed, seconds)| gone.count(removed, at(seconds)))
            .into();
        assert_eq!(told, [None, Some(3), None, None, Some(7), None]);
    }
}
