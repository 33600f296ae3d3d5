//! Support for a test clock: the time to which it may move, and the work that is due then.

use crate::codec::StoreError;
use crate::engine::Engine;
use crate::engine::context::error::EngineError;
use crate::machine::Workflow;
use crate::model::{JobState, Timestamp, WorkflowId};
use crate::store::TimeIndex;

/// A time later than all timers.
const FAR_FUTURE: Timestamp = Timestamp::from_micros(u64::MAX);

impl Engine {
    /// The earliest time at which a scheduled job becomes ready or a rate limit has room. Ends of
    /// leases and removals do not count. It reads all workflows with an earlier timer one by one,
    /// which suits only the stores of tests.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn next_ready_time(&self) -> Result<Option<Timestamp>, EngineError> {
        let partitions: Vec<_> = self
            .core
            .context
            .membership
            .local_partitions
            .iter()
            .collect();
        let mut timers: Vec<(WorkflowId, Timestamp)> = Vec::new();
        for read in self
            .store()
            .due(TimeIndex::Timers, FAR_FUTURE, usize::MAX, &partitions)
            .await
        {
            timers.extend(read?);
        }
        timers.sort_unstable_by_key(|&(_, at)| at);
        let mut next = self.queues().next_window_end();
        for (id, timer) in timers {
            // The timer of a workflow is at or before the earliest due time of its jobs.
            if next.is_some_and(|next| next <= timer) {
                break;
            }
            next = next
                .into_iter()
                .chain(self.first_scheduled(id).await?)
                .min();
        }
        Ok(next)
    }

    /// The earliest due time of a workflow's scheduled jobs.
    async fn first_scheduled(&self, id: WorkflowId) -> Result<Option<Timestamp>, EngineError> {
        let stored = self.store().load(&[id]).await?.pop().flatten();
        // The workflow may have been removed, or its record is unreadable.
        let Some(Ok(workflow)) = stored.map(|stored| Workflow::read(id, &stored)) else {
            return Ok(None);
        };
        let due = workflow.jobs.iter().filter_map(|job| match job.state {
            JobState::Scheduled { due } => Some(due),
            _ => None,
        });
        Ok(due.min())
    }

    /// Processes all work that is due at `now` after the clock moved: waiting workers receive the
    /// jobs that became ready.
    ///
    /// # Errors
    /// The store cannot be read. Work that was not done stays due.
    ///
    /// # Cancellation
    /// Work that was not done stays due.
    pub async fn catch_up(&self, now: Timestamp) -> Result<(), StoreError> {
        while self.sweep(now).await? {}
        self.queues().unblock_due(now);
        Ok(())
    }
}
