//! The states of queues, for people.

use crate::engine::Engine;
use crate::engine::error::EngineError;
use crate::engine::partial::Partial;
use crate::engine::queues::Paused;
use crate::record::rows::{ReadyEntry, queue_rows};
use crate::store::ears::CallOut;
use crate::store::query::Register;
use crate::time::Timestamp;

/// The state of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueState {
    /// Its name.
    pub name: String,
    /// Whether it is paused.
    pub paused: Paused,
    /// The number of ready jobs.
    pub ready: u64,
    /// The time since which the oldest job is ready. Only the most urgent job of each partition is considered.
    pub oldest: Option<Timestamp>,
    /// The number of workers that wait at this server now.
    pub waiting_workers: usize,
}

impl Engine {
    /// All queues that a job ever named.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn queue_states(&self) -> Result<Partial<Vec<QueueState>>, EngineError> {
        let mut queues = self.queue_names().await?;
        queues.sort_unstable();
        let prefixes: Vec<_> = queues.iter().map(|(name, _)| queue_rows(name)).collect();
        let (partitions, mut missing) = self.readable();
        let depths = self.store().ready_depth(&prefixes, &partitions).await;
        let (depths, others) = self.answered(&partitions, depths)?;
        missing.add(others);
        let state = |(at, (name, value)): (usize, (String, String))| {
            let each = || depths.iter().map(|(_, depths)| &depths[at]);
            let oldest = each().filter_map(|(_, row)| Some(ReadyEntry::read(row.as_ref()?)?.since)).min();
            let waiting_workers = self.queues().waiting_workers(&name);
            let ready = each().map(|(ready, _)| ready).sum();
            QueueState { name, paused: Paused::read(&value), ready, oldest, waiting_workers }
        };
        Ok(Partial { found: queues.into_iter().enumerate().map(state).collect(), missing })
    }

    /// Whether a job ever named this queue.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn has_queue(&self, name: &str) -> Result<bool, EngineError> {
        Ok(self.queue_names().await?.iter().any(|(known, _)| known == name))
    }

    /// Pauses or resumes a queue on all servers of the store. Workers get no jobs of a paused queue.
    ///
    /// # Errors
    /// The store cannot be written.
    pub async fn set_queue_paused(&self, name: &str, paused: Paused) -> Result<(), EngineError> {
        self.store().enter(Register::Queues, name, Some(paused.value())).await?;
        self.queues().set_paused(name, paused);
        self.store().call_out(self.server(), CallOut::Queues).await;
        // Those who wait are woken by what is read. If that fails, the next sweep does it.
        let _later = self.refill(&self.queues().failed()).await;
        Ok(())
    }
}
