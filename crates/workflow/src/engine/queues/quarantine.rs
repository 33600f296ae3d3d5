//! Ready jobs that cannot be leased and are not tried again for a while.

use std::time::Duration;

use hashbrown::{HashMap, HashSet};

use super::{DequeuedJob, QueueCache};
use crate::codec::rows::ReadyKey;
use crate::id::{Partition, WorkflowId};
use crate::store::error::StoreError;
use crate::time::Timestamp;

/// Time after which a workflow is tried again: an operator may have repaired it.
const QUARANTINE_TTL: Duration = Duration::from_secs(60);
/// Maximum number of workflows, and of jobs, that are kept: about 100 and 40 bytes each.
const MOST: usize = 16_384;

/// Ready jobs that cannot be leased.
#[derive(Debug, Default)]
pub(super) struct Quarantine {
    /// Workflows whose state is unusable, each with the time until which its jobs are skipped.
    workflows: HashMap<WorkflowId, Timestamp>,
    /// Workflows whose rows could not be compared with the state because the store failed.
    unwritten: HashSet<WorkflowId>,
    /// Jobs with a ready row that were not ready by their state, or whose workflow was gone. If a
    /// later read finds the row again, no other server removes it.
    orphans: HashSet<ReadyKey>,
}

impl Quarantine {
    /// Skips the jobs of a workflow for a while. Returns whether they were not skipped before.
    pub(super) fn add(&mut self, workflow: WorkflowId, now: Timestamp) -> bool {
        if self.workflows.len() >= MOST {
            self.workflows.retain(|_, until| *until > now);
        }
        let known = self.workflows.contains_key(&workflow);
        if known || self.workflows.len() < MOST {
            self.workflows.insert(workflow, now + QUARANTINE_TTL);
        }
        !known
    }

    /// Skips the jobs of a workflow until the store works again.
    pub(super) fn add_until_store_works(&mut self, workflow: WorkflowId) {
        if self.unwritten.len() < MOST {
            self.unwritten.insert(workflow);
        }
    }

    /// Releases workflows in partitions where the store works. Returns whether there were any.
    pub(super) fn release(&mut self, works: impl Fn(Partition) -> bool) -> bool {
        self.unwritten
            .extract_if(|workflow| works(workflow.partition()))
            .count()
            > 0
    }

    pub(super) fn has(&self, workflow: WorkflowId, now: Timestamp) -> bool {
        self.unwritten.contains(&workflow)
            || (!self.workflows.is_empty()
                && self
                    .workflows
                    .get(&workflow)
                    .is_some_and(|until| *until > now))
    }

    /// Whether no workflow is skipped until the store works.
    pub(super) fn is_written(&self) -> bool {
        self.unwritten.is_empty()
    }

    pub(super) fn number(&self) -> usize {
        self.workflows.len() + self.unwritten.len()
    }

    pub(super) fn note_orphan(&mut self, head: ReadyKey) {
        if self.orphans.len() >= MOST {
            self.orphans.clear();
        }
        self.orphans.insert(head);
    }

    /// Forgets a job that a read found. Returns whether it was recorded as an orphan before.
    pub(super) fn take_orphan(&mut self, head: &ReadyKey) -> bool {
        !self.orphans.is_empty() && self.orphans.remove(head)
    }
}

impl QueueCache {
    /// Records a job that was not ready, or whose workflow was gone. If the next read of the store
    /// still finds its row, the row is stale.
    pub(crate) fn note_orphan(&self, taken: &DequeuedJob) {
        self.aside().note_orphan(taken.head);
    }

    /// Skips a workflow that cannot be read for a while, and logs the error.
    pub(crate) fn pass_over(&self, workflow: WorkflowId, error: &StoreError) {
        if self.put_aside(workflow) {
            tracing::error!(%workflow, %error, "a workflow that cannot be read is passed over");
        }
    }

    /// Skips the jobs of a workflow for a while. Returns whether they were not skipped before.
    pub(crate) fn put_aside(&self, workflow: WorkflowId) -> bool {
        self.drop_heads(workflow);
        self.aside().add(workflow, self.now())
    }

    /// Skips the jobs of a workflow until [`QueueCache::release`]: the store failed, the workflow
    /// did not.
    pub(crate) fn add_until_store_works(&self, workflow: WorkflowId) {
        self.drop_heads(workflow);
        self.aside().add_until_store_works(workflow);
        self.refill_needed.notify_one();
    }

    /// Releases the jobs that were skipped until the store works in these partitions, so that they
    /// are read again.
    pub(crate) fn release(&self, works: impl Fn(Partition) -> bool) {
        if self.aside().release(works) {
            for queue in self.lock().values_mut() {
                queue.mark_incomplete();
                queue.failed = true;
            }
        }
    }

    fn drop_heads(&self, workflow: WorkflowId) {
        for queue in self.lock().values_mut() {
            queue
                .lanes
                .change_all(|_, lane| lane.heads.retain(|head| head.workflow() != workflow));
        }
    }

    /// Whether the jobs of a workflow are skipped now.
    pub(crate) fn is_aside(&self, workflow: WorkflowId) -> bool {
        self.aside().has(workflow, self.now())
    }

    /// Number of workflows whose jobs are skipped.
    pub(crate) fn number_aside(&self) -> usize {
        self.aside().number()
    }
}
