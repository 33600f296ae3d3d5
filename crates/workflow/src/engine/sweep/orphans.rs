//! Removal of orphan rows: rows without a workflow, which remain when a store loses some of its
//! keys. Also repairs of single workflows, for a check that compares rows with states.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hashbrown::{HashMap, HashSet};

use super::SweepScope;
use crate::codec::{Applied, Change, Delete, ReadyJob, Row, StoreError, Write};
use crate::engine::actor::answer::Answer;
use crate::engine::actor::partial_writes::PartialWrites;
use crate::engine::actor::request::Request;
use crate::engine::context::error::EngineError;
use crate::engine::{Engine, StoreOperation};
use crate::model::{Partition, Timestamp, WorkflowId};

/// Interval at which removed rows are logged.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// Maximum workflows in the table; above it the table is cleared.
const MAX_WORKFLOWS: usize = 16_384;
/// Workflows of one call of the store.
const CHANGES_PER_CALL: usize = 256;

/// Workflows that were due and did not exist, and removed rows that are not logged yet.
#[derive(Debug, Default)]
pub(crate) struct OrphanRows(Mutex<OrphanTable>);

#[derive(Debug, Default)]
struct OrphanTable {
    /// Workflows that were due in a sweep and did not exist.
    due: HashSet<WorkflowId>,
    /// Number of removals that are not logged yet.
    unlogged: u64,
    logged_at: Option<Timestamp>,
}

impl OrphanRows {
    fn with_table<T>(&self, with: impl FnOnce(&mut OrphanTable) -> T) -> T {
        with(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Records workflows that were due in a sweep and did not exist. A sweep reads only some
    /// partitions, so other workflows stay in the table.
    pub(super) fn record(&self, due: HashSet<WorkflowId>) {
        self.with_table(|table| {
            if table.due.len() + due.len() > MAX_WORKFLOWS {
                table.due.clear();
            }
            table.due.extend(due);
        });
    }

    /// Counts removals. Returns the number to log, at most once a minute.
    fn count(&self, removed: u64, now: Timestamp) -> Option<u64> {
        self.with_table(|table| {
            table.unlogged += removed;
            let may_log = table
                .logged_at
                .is_none_or(|logged_at| now.since(logged_at) >= LOG_INTERVAL);
            (table.unlogged > 0 && may_log).then(|| {
                table.logged_at = Some(now);
                std::mem::take(&mut table.unlogged)
            })
        })
    }
}

impl Engine {
    /// Removes ready rows whose workflows are gone. If a workflow exists, its rows are written
    /// again from its state.
    pub(crate) async fn remove_orphan_rows(&self, rows: Vec<Row>) {
        let mut orphans: HashMap<WorkflowId, Delete> = HashMap::new();
        for row in rows {
            if let Some(entry) = ReadyJob::read(&row) {
                orphans.entry(entry.workflow).or_default().ready.push(row);
            }
        }
        self.remove_orphans(orphans).await;
    }

    /// Removes workflows from `due` that did not exist in an earlier sweep either, with their
    /// remaining rows. After the first sweep another server may just have removed a workflow.
    /// Returns their number.
    pub(super) async fn remove_known_orphans(
        &self,
        due: impl Iterator<Item = &mut Vec<(WorkflowId, Timestamp)>>,
    ) -> usize {
        let mut known_absent = self
            .core
            .context
            .orphan_rows
            .with_table(|known_absent| std::mem::take(&mut known_absent.due));
        let mut orphans = HashMap::new();
        for due in due.filter(|_| !known_absent.is_empty()) {
            orphans.extend(
                due.extract_if(.., |(id, _)| known_absent.contains(id))
                    .map(|(id, _)| (id, Delete::default())),
            );
        }
        known_absent.retain(|id| !orphans.contains_key(id));
        self.core.context.orphan_rows.record(known_absent);
        let number = orphans.len();
        self.remove_orphans(orphans).await;
        number
    }

    /// Completes interrupted writes: rows of existing workflows are written again, rows of
    /// interrupted creations are removed.
    pub(super) async fn repair_partial_writes(&self, scope: SweepScope, now: Timestamp) {
        let partial_writes = self.due_partial_writes(scope, now);
        let mut orphans = HashMap::new();
        for (id, answer) in self.request_rewrites(&partial_writes, now).await {
            match answer {
                Err(EngineError::NoWorkflow { .. }) => {
                    let orphan_rows = self.partial_writes(id).orphan_rows(id);
                    orphans.extend(orphan_rows.map(|orphan_rows| (id, orphan_rows)))
                }
                Err(error) => {
                    tracing::debug!(workflow = %id, %error, "the rows of a workflow could not be written again")
                }
                Ok(_) => {}
            }
        }
        self.remove_orphans(orphans).await;
    }

    /// The workflows whose interrupted writes are to be completed now.
    fn due_partial_writes(&self, scope: SweepScope, now: Timestamp) -> Vec<WorkflowId> {
        let store_health = &self.core.context.store_health;
        let mut due = Vec::new();
        for (partition, actor) in self.store().all_partitions().zip(&self.core.actors) {
            let max_workflows = scope.max_workflows(store_health, partition, StoreOperation::Write);
            due.extend(actor.partial_writes.due(now, max_workflows));
        }
        due
    }

    fn partial_writes(&self, id: WorkflowId) -> &PartialWrites {
        &self.core.actors[usize::from(id.partition().0)].partial_writes
    }

    /// Requests that workflows write their rows again. Returns the answer of each.
    async fn request_rewrites(
        &self,
        ids: &[WorkflowId],
        now: Timestamp,
    ) -> impl Iterator<Item = (WorkflowId, Result<Answer, EngineError>)> {
        let requests = ids.iter().map(|&id| (id, Request::RepairRows));
        let answers = self.request_all(requests.collect(), now).await;
        ids.iter().copied().zip(answers)
    }

    /// Removes the remains of workflows that are gone: these rows, and everything that is found
    /// without the state. Existing workflows, and those that cannot be removed now, are quarantined
    /// for a while.
    pub(super) async fn remove_orphans(&self, orphans: HashMap<WorkflowId, Delete>) {
        let removed = self.remove_remains(orphans).await;
        if let Some(removed) = self
            .core
            .context
            .orphan_rows
            .count(removed, self.queues().now())
        {
            tracing::warn!(
                removed,
                "the store had lost workflows that were ready or due: what was left of them is removed"
            );
        }
    }

    /// Works as [`Engine::remove_orphans`], without a log message. Returns the number of workflows
    /// with removals.
    pub(super) async fn remove_remains(&self, orphans: HashMap<WorkflowId, Delete>) -> u64 {
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
            for batch in changes.chunks(CHANGES_PER_CALL) {
                removed += self.remove_batch(partition, batch).await;
            }
        }
        removed
    }

    /// Returns the number of removals.
    async fn remove_batch(&self, partition: Partition, changes: &[Change]) -> u64 {
        let applied = self.store().apply(partition, changes).await;
        // An answer that a workflow exists does not prove that removals work.
        if applied
            .as_ref()
            .map_or(true, |applied| applied.contains(&Applied::Done))
        {
            self.core.context.store_health.record(
                partition,
                StoreOperation::Removal,
                applied.as_ref(),
            );
        }
        let mut removed = 0;
        let mut existing = Vec::new();
        for (at, change) in changes.iter().enumerate() {
            let applied = applied.as_ref().map(|applied| &applied[at]);
            removed += u64::from(self.finish_removal(change, applied, &mut existing));
        }
        self.rewrite_rows(existing).await;
        removed
    }

    /// Handles the result of one removal. Returns whether the rows are removed. If the workflow
    /// exists and must write its rows again, it is added to `existing`.
    fn finish_removal(
        &self,
        change: &Change,
        applied: Result<&Applied, &StoreError>,
        existing: &mut Vec<WorkflowId>,
    ) -> bool {
        let workflow = change.workflow;
        let Write::Delete(delete) = &change.write else {
            return false;
        };
        match applied {
            Ok(Applied::Done) => {
                self.partial_writes(workflow).repaired(workflow);
                self.queues().apply_rows(&delete.ready, &[]);
                return true;
            }
            Ok(Applied::Conflict(Some(_)) | Applied::MustReload) if !delete.ready.is_empty() => {
                self.partial_writes(workflow)
                    .record_rows(workflow, &delete.ready, &[]);
                existing.push(workflow);
            }
            // The workflow exists, and its due work does not depend on this removal.
            Ok(Applied::Conflict(Some(_)) | Applied::MustReload) => {}
            Err(
                StoreError::Unavailable { .. }
                | StoreError::Unknown { .. }
                | StoreError::PartialWrite { .. },
            ) => self.queues().add_until_store_works(workflow),
            _ => _ = self.queues().quarantine_workflow(workflow),
        }
        false
    }

    /// Writes the rows of workflows again. Workflows that cannot be written now are quarantined.
    async fn rewrite_rows(&self, workflows: Vec<WorkflowId>) {
        let now = self.queues().now();
        for (id, answer) in self.request_rewrites(&workflows, now).await {
            match answer {
                Ok(_) => {}
                Err(EngineError::Store(StoreError::Corrupt { .. })) => {
                    _ = self.queues().quarantine_workflow(id)
                }
                Err(_) => self.queues().add_until_store_works(id),
            }
        }
    }
}

impl Engine {
    /// Writes all rows of a workflow again. The rows in `orphan_rows` are removed unless they
    /// follow from the state. If the workflow does not exist, they are removed with its timer and
    /// expiry. Other servers may work at the same time: their writes are kept.
    ///
    /// # Errors
    /// The state cannot be read, or the store failed.
    ///
    /// # Cancellation
    /// The repair may still be applied when the future is dropped.
    pub async fn repair(
        &self,
        workflow: WorkflowId,
        orphan_rows: Delete,
        now: Timestamp,
    ) -> Result<(), EngineError> {
        if let Some(actor) = self.core.actors.get(usize::from(workflow.partition().0)) {
            actor
                .partial_writes
                .record_rows(workflow, &orphan_rows.ready, &orphan_rows.index);
        }
        match self.request(workflow, Request::RepairRows, now).await {
            Err(EngineError::NoWorkflow { .. }) => {
                self.remove_remains(HashMap::from([(workflow, orphan_rows)]))
                    .await;
                Ok(())
            }
            answer => answer.map(drop),
        }
    }

    /// Writes the idempotency key of a workflow again, unless another workflow has it now.
    ///
    /// # Errors
    /// The errors of [`Engine::repair`].
    ///
    /// # Cancellation
    /// The repair may still be applied when the future is dropped.
    pub async fn repair_key(
        &self,
        workflow: WorkflowId,
        now: Timestamp,
    ) -> Result<(), EngineError> {
        self.request(workflow, Request::RestoreKey, now)
            .await
            .map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removals_are_logged_once_a_minute_with_their_number() {
        let gone = OrphanRows::default();
        let at = |seconds: u64| Timestamp::from_micros(seconds * 1_000_000);
        let told: Vec<Option<u64>> = [(0, 0), (3, 1), (2, 2), (1, 60), (4, 61), (0, 200)]
            .map(|(removed, seconds)| gone.count(removed, at(seconds)))
            .into();
        assert_eq!(told, [None, Some(3), None, None, Some(7), None]);
    }
}
