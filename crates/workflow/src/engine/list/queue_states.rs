//! The states of queues, for people.

use super::partial::PartialResult;
use crate::codec::{ReadyJob, StoreError, queue_rows};
use crate::engine::Engine;
use crate::engine::context::error::EngineError;
use crate::model::Timestamp;
use crate::queue::Paused;
use crate::store::Register;

/// Queues of a page when all queues are read.
const PAGE_QUEUES: usize = 1_000;

/// The state of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueState {
    /// Its name.
    pub name: String,
    /// Whether it is paused.
    pub paused: Paused,
    /// The number of ready jobs.
    pub ready: u64,
    /// The time at which the oldest job became ready. Only the most urgent job of each partition is
    /// considered.
    pub oldest: Option<Timestamp>,
    /// The number of workers that wait at this server.
    pub waiting_workers: usize,
}

/// A page of queues by name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QueuePage {
    /// The queues.
    pub queues: Vec<QueueState>,
    /// Whether there are more after the last one.
    pub more: bool,
}

impl Engine {
    /// At most `limit` queues by name, after the name `after`. A page takes two round trips,
    /// however many queues there are, and a third if some have many jobs.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn queue_page(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<PartialResult<QueuePage>, EngineError> {
        let mut queues = self.queue_names(after, limit + 1).await?;
        let more = queues.len() > limit;
        queues.truncate(limit);
        let PartialResult {
            found: queues,
            missing,
        } = self.states_for(queues).await?;
        Ok(PartialResult {
            found: QueuePage { queues, more },
            missing,
        })
    }

    /// The states of those of these queues that exist.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn queues_named(
        &self,
        names: Vec<String>,
    ) -> Result<PartialResult<Vec<QueueState>>, EngineError> {
        let values = self.store().registered(Register::Queues, &names).await?;
        self.states_for(
            names
                .into_iter()
                .zip(values)
                .filter_map(|(name, value)| Some((name, value?)))
                .collect(),
        )
        .await
    }

    /// The states of queues with these register values.
    async fn states_for(
        &self,
        queues: Vec<(String, String)>,
    ) -> Result<PartialResult<Vec<QueueState>>, EngineError> {
        let prefixes: Vec<_> = queues.iter().map(|(name, _)| queue_rows(name)).collect();
        let (partitions, mut missing) = self.readable_partitions();
        let depths = self.store().ready_depth(&prefixes, &partitions).await;
        let (depths, others) = self.split_answers(&partitions, depths)?;
        missing.add(others);
        let state = |(at, (name, value)): (usize, (String, String))| {
            let per_partition = || depths.iter().map(|(_, depths)| &depths[at]);
            let oldest = per_partition()
                .filter_map(|(_, row)| Some(ReadyJob::read(row.as_ref()?)?.since))
                .min();
            let waiting_workers = self.queues().waiting_workers(&name);
            let ready = per_partition().map(|(ready, _)| ready).sum();
            QueueState {
                name,
                paused: Paused::read(&value),
                ready,
                oldest,
                waiting_workers,
            }
        };
        Ok(PartialResult {
            found: queues.into_iter().enumerate().map(state).collect(),
            missing,
        })
    }

    /// All queues by name.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn queue_states(&self) -> Result<PartialResult<Vec<QueueState>>, EngineError> {
        let mut all: PartialResult<Vec<QueueState>> = PartialResult::default();
        loop {
            let after = all.found.last().map(|queue| queue.name.clone());
            let PartialResult { found, missing } =
                self.queue_page(after.as_deref(), PAGE_QUEUES).await?;
            all.found.extend(found.queues);
            all.missing.add(missing);
            if !found.more {
                return Ok(all);
            }
        }
    }

    /// Whether a queue of this name exists: a job named it, and the name has not expired.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn has_queue(&self, name: &str) -> Result<bool, EngineError> {
        match self
            .store()
            .registered(Register::Queues, &[name.to_owned()])
            .await
        {
            Err(StoreError::Unavailable { .. }) if self.is_partially_available() => {
                Ok(self.core.name_cache.has_queue(name))
            }
            found => Ok(found?.iter().any(Option::is_some)),
        }
    }

    /// Pauses or resumes a queue on all servers of the store. Workers get no jobs of a paused
    /// queue.
    ///
    /// # Errors
    /// The store cannot be written.
    pub async fn set_queue_paused(&self, name: &str, paused: Paused) -> Result<(), EngineError> {
        self.store()
            .set_entry(Register::Queues, name, Some(paused.value()))
            .await?;
        self.queues().set_paused(name, paused);
        self.broadcast_change().await;
        // This wakes waiting workers.
        self.run_required_refills().await;
        Ok(())
    }
}
