//! Ready jobs that cannot be leased and are not tried again for a while.

use std::time::Duration;

use hashbrown::{HashMap, HashSet};

use super::QueueCache;
use super::cache::DequeuedJob;
use crate::codec::{ReadyKey, StoreError};
use crate::model::{Partition, Timestamp, WorkflowId};

/// Time after which a workflow is tried again: an operator may have repaired it.
const QUARANTINE_TTL: Duration = Duration::from_secs(60);
/// Maximum number of workflows, and of jobs, that are kept: about 100 and 40 bytes each.
const MAX_ENTRIES: usize = 16_384;

/// Ready jobs that cannot be leased.
#[derive(Debug, Default)]
pub(crate) struct Quarantine {
    /// Workflows whose state is unusable, each with the time until which its jobs are skipped.
    workflows: HashMap<WorkflowId, Timestamp>,
    /// Workflows whose rows could not be compared with the state because the store failed.
    until_store_works: HashSet<WorkflowId>,
    /// Jobs with a ready row that were not ready by their state, or whose workflow was gone. If a
    /// later read finds the row again, no other server removes it.
    orphans: HashSet<ReadyKey>,
}

impl Quarantine {
    /// Skips the jobs of a workflow for a while. Returns whether they were not skipped before.
    pub(super) fn add(&mut self, workflow: WorkflowId, now: Timestamp) -> bool {
        if self.workflows.len() >= MAX_ENTRIES {
            self.workflows.retain(|_, until| *until > now);
        }
        let known = self.workflows.contains_key(&workflow);
        if known || self.workflows.len() < MAX_ENTRIES {
            self.workflows.insert(workflow, now + QUARANTINE_TTL);
        }
        !known
    }

    /// Skips the jobs of a workflow until the store works again.
    pub(super) fn add_until_store_works(&mut self, workflow: WorkflowId) {
        if self.until_store_works.len() < MAX_ENTRIES {
            self.until_store_works.insert(workflow);
        }
    }

    /// Releases workflows in partitions where the store works. Returns whether there were any.
    pub(super) fn release(&mut self, works: impl Fn(Partition) -> bool) -> bool {
        self.until_store_works
            .extract_if(|workflow| works(workflow.partition()))
            .count()
            > 0
    }

    pub(super) fn contains(&self, workflow: WorkflowId, now: Timestamp) -> bool {
        self.until_store_works.contains(&workflow)
            || (!self.workflows.is_empty()
                && self
                    .workflows
                    .get(&workflow)
                    .is_some_and(|until| *until > now))
    }

    /// Whether no workflow is skipped until the store works.
    pub(super) fn none_await_store(&self) -> bool {
        self.until_store_works.is_empty()
    }

    pub(super) fn count(&self) -> usize {
        self.workflows.len() + self.until_store_works.len()
    }

    pub(super) fn record_orphan(&mut self, ready_key: ReadyKey) {
        if self.orphans.len() >= MAX_ENTRIES {
            self.orphans.clear();
        }
        self.orphans.insert(ready_key);
    }

    /// Forgets a job that a read found. Returns whether it was recorded as an orphan before.
    pub(super) fn remove_orphan(&mut self, ready_key: &ReadyKey) -> bool {
        !self.orphans.is_empty() && self.orphans.remove(ready_key)
    }
}

impl QueueCache {
    /// Records a job that was not ready, or whose workflow was gone. If the next read of the store
    /// still finds its row, the row is stale.
    pub(crate) fn record_orphan(&self, dequeued: &DequeuedJob) {
        self.quarantine().record_orphan(dequeued.ready_key);
    }

    /// Skips a workflow that cannot be read for a while, and logs the error.
    pub(crate) fn quarantine_unreadable(&self, workflow: WorkflowId, error: &StoreError) {
        if self.quarantine_workflow(workflow) {
            tracing::error!(%workflow, %error, "a workflow that cannot be read is passed over");
        }
    }

    /// Skips the jobs of a workflow for a while. Returns whether they were not skipped before.
    pub(crate) fn quarantine_workflow(&self, workflow: WorkflowId) -> bool {
        self.drop_known_jobs(workflow);
        self.quarantine().add(workflow, self.now())
    }

    /// Skips the jobs of a workflow until [`QueueCache::release`]: the store failed, the workflow
    /// did not.
    pub(crate) fn add_until_store_works(&self, workflow: WorkflowId) {
        self.drop_known_jobs(workflow);
        self.quarantine().add_until_store_works(workflow);
        self.refill_needed.notify_one();
    }

    /// Releases the jobs that were skipped until the store works in these partitions, so that they
    /// are read again.
    pub(crate) fn release(&self, works: impl Fn(Partition) -> bool) {
        if self.quarantine().release(works) {
            for queue in self.lock().values_mut() {
                queue.mark_incomplete();
                queue.must_refill = true;
            }
        }
    }

    fn drop_known_jobs(&self, workflow: WorkflowId) {
        for queue in self.lock().values_mut() {
            queue.ready_jobs.change_all(|_, lane| {
                lane.known_jobs
                    .retain(|ready_key| ready_key.workflow() != workflow)
            });
        }
    }

    /// Whether the jobs of a workflow are skipped now.
    pub(crate) fn is_quarantined(&self, workflow: WorkflowId) -> bool {
        self.quarantine().contains(workflow, self.now())
    }

    /// Number of workflows whose jobs are skipped.
    pub(crate) fn quarantined_workflows(&self) -> usize {
        self.quarantine().count()
    }
}
