//! Rows whose workflow is gone. Nobody writes such rows; they are left when a store loses some of
//! its keys.

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

/// How often removed rows are logged.
const TOLD: Duration = Duration::from_secs(60);
/// The most workflows that are remembered.
const MOST: usize = 16_384;
/// How many workflows one call of the store is about.
const TOGETHER: usize = 256;

/// What is known of rows whose workflow is gone.
#[derive(Debug, Default)]
pub(crate) struct Gone(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// Workflows that were due in a sweep and not there.
    due: HashSet<WorkflowId>,
    /// Removed and not logged yet.
    untold: u64,
    told: Option<Timestamp>,
}

impl Gone {
    fn known<T>(&self, with: impl FnOnce(&mut Known) -> T) -> T {
        with(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Notes which workflows were due in a sweep and not there. Each sweep looks at some partitions
    /// only, so it forgets nothing.
    pub(super) fn note(&self, due: HashSet<WorkflowId>) {
        self.known(|known| {
            if known.due.len() + due.len() > MOST {
                known.due.clear();
            }
            known.due.extend(due);
        });
    }

    /// Counts removed rows. Returns the number to log now, at most once a minute.
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
    /// Removes ready rows whose workflows are gone. Where a workflow is there, its rows are written
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

    /// Takes those out that were not there in a sweep before, and removes what is left of them. At
    /// the first time another server may just have removed them. Returns how many were taken out.
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

    /// Writes the rows of workflows again of which a write stopped half way; of a creation, removes
    /// what is there.
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

    /// Removes what is left of workflows that are gone: these rows, and all that needs no look at
    /// the state. The rows of a workflow that is there, or that cannot be removed now, are passed
    /// over for a while.
    pub(super) async fn bury(&self, orphans: HashMap<WorkflowId, Delete>) {
        let removed = self.remove_left(orphans).await;
        if let Some(removed) = self.core.context.gone.count(removed, self.queues().now()) {
            tracing::warn!(
                removed,
                "the store had lost workflows that were ready or due: what was left of them is removed"
            );
        }
    }

    /// As [`Engine::bury`]. Returns of how many workflows something was removed.
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

    /// Returns how many were removed.
    async fn bury_some(&self, partition: Partition, changes: &[Change]) -> u64 {
        let applied = self.store().apply(partition, changes).await;
        // That a workflow is there proves nothing.
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
                // It is there, and what it has to do is done without this.
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

    /// Writes the rows of workflows again. Those that cannot be written now are passed over for a
    /// while.
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
