//! What a clock that tests move needs: where to move it, and what is due after that.

use crate::engine::Engine;
use crate::engine::error::EngineError;
use crate::id::WorkflowId;
use crate::state::JobState;
use crate::store::error::StoreError;
use crate::store::query::TimeIndex;
use crate::time::Timestamp;
use crate::workflow::Workflow;

/// Later than all timers.
const END: Timestamp = Timestamp::from_micros(u64::MAX);

impl Engine {
    /// The first moment at which a job is ready again that waits for a time, or at which a rate limit has room again. Ends of leases and removals are none. It reads all workflows with a timer up to that moment, one by one: for the stores of tests.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn next_wait(&self) -> Result<Option<Timestamp>, EngineError> {
        let partitions: Vec<_> = self.core.context.home.mine.each().collect();
        let mut timers: Vec<(WorkflowId, Timestamp)> = Vec::new();
        for read in self
            .store()
            .due(TimeIndex::Timers, END, usize::MAX, &partitions)
            .await
        {
            timers.extend(read?);
        }
        timers.sort_unstable_by_key(|&(_, at)| at);
        let mut next = self.queues().next_turn();
        for (id, timer) in timers {
            // The timer of a workflow is at or before the first moment at which one of its jobs is due.
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

    /// When the first job of a workflow is ready that waits for a time.
    async fn first_scheduled(&self, id: WorkflowId) -> Result<Option<Timestamp>, EngineError> {
        let stored = self.store().load(&[id]).await?.pop().flatten();
        // It may have been removed meanwhile, or nobody can read it.
        let Some(Ok(workflow)) = stored.map(|stored| Workflow::read(id, &stored)) else {
            return Ok(None);
        };
        let due = workflow.jobs.iter().filter_map(|job| match job.state {
            JobState::Scheduled { due } => Some(due),
            _ => None,
        });
        Ok(due.min())
    }

    /// Does all that is due at `now`, after time has jumped: workers that wait get what became ready.
    ///
    /// # Errors
    /// The store cannot be read. What was not done stays due.
    ///
    /// # Cancellation
    /// What was not done stays due.
    pub async fn catch_up(&self, now: Timestamp) -> Result<(), StoreError> {
        while self.sweep(now).await? {}
        self.queues().open_due(now);
        Ok(())
    }
}
