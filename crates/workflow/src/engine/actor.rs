//! The actor of a partition serves the requests about its workflows in batches. It applies all
//! queued requests to the states in memory, and writes what changed with one call of the store.

pub(crate) mod answer;
pub(crate) mod apply;
mod assign;
mod batch;
pub(crate) mod cache;
mod commit;
mod load;
pub(crate) mod mailbox;
pub(crate) mod partial_writes;
pub(crate) mod reply_set;
pub(crate) mod request;
pub(crate) mod run_blocking;

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use self::apply::Applier;
use self::assign::undelivered_lease::SharedLeaseReleaser;
use self::batch::WorkflowBatch;
use self::cache::StateCache;
use self::commit::GroupCommit;
use self::partial_writes::PartialWrites;
use self::request::Envelope;
use super::Context;
use super::context::error::EngineError;
use crate::codec::StoreError;
use crate::model::Partition;
use crate::store::Store;

/// Most requests that may be queued in one partition. A caller waits for each.
const MAX_QUEUED: usize = 65_536;
/// Most attempts to apply and write a request while other servers keep writing first.
const MAX_ATTEMPTS: usize = 32;
/// Attempts with the whole batch. Each further attempt leaves the later half of the requests for
/// afterwards, because small writes conflict less.
const WHOLE_BATCH_ATTEMPTS: usize = 2;
/// Batches of this size are not halved: fewer requests would not be faster.
const MIN_BATCH: usize = 16;

/// The actor of one partition. At most one task at a time runs it.
#[derive(Debug)]
pub(crate) struct PartitionActor {
    partition: Partition,
    mailbox: Mutex<Mailbox>,
    pub(crate) partial_writes: PartialWrites,
}

#[derive(Debug, Default)]
struct Mailbox {
    queued: VecDeque<Envelope>,
    /// Whether a task serves the requests.
    running: bool,
    closed: bool,
}

impl PartitionActor {
    pub(crate) fn new(partition: Partition) -> Self {
        Self {
            partition,
            mailbox: Mutex::default(),
            partial_writes: PartialWrites::default(),
        }
    }

    fn mailbox(&self) -> MutexGuard<'_, Mailbox> {
        self.mailbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues requests. Returns true if the caller must start a task that runs the actor.
    ///
    /// # Errors
    /// Too many requests are queued, or the engine is closing. The requests are returned.
    pub(crate) fn enqueue(
        &self,
        envelopes: Vec<Envelope>,
    ) -> Result<bool, (Vec<Envelope>, EngineError)> {
        let mut mailbox = self.mailbox();
        if mailbox.closed {
            return Err((envelopes, EngineError::Closed));
        }
        if !mailbox.queued.is_empty() && mailbox.queued.len() + envelopes.len() > MAX_QUEUED {
            return Err((envelopes, EngineError::Overloaded));
        }
        mailbox.queued.extend(envelopes);
        Ok(!std::mem::replace(&mut mailbox.running, true))
    }

    /// Handles the end of the task that ran the actor: the next request starts another task.
    /// Callers of queued requests get the error that the engine is closed.
    pub(crate) fn on_task_lost(&self) {
        let mut mailbox = self.mailbox();
        mailbox.running = false;
        let waiting = std::mem::take(&mut mailbox.queued);
        // Dropping the requests may queue others, which takes the lock again.
        drop(mailbox);
        drop(waiting);
    }

    pub(crate) fn close(&self) {
        self.mailbox().closed = true;
    }

    fn next_batch(&self, max: usize) -> Option<Vec<Envelope>> {
        let mut mailbox = self.mailbox();
        let size = mailbox.queued.len().min(max);
        mailbox.running = size > 0;
        mailbox
            .running
            .then(|| mailbox.queued.drain(..size).collect())
    }

    /// Serves all queued requests. `releaser` returns each lease that does not reach its worker.
    pub(crate) async fn run(
        &self,
        context: &Context,
        store: &Store,
        state_cache: &StateCache,
        releaser: &SharedLeaseReleaser,
    ) {
        let applier = Applier {
            context,
            store,
            releaser,
        };
        let group_commit = GroupCommit {
            applier,
            partition: self.partition,
            state_cache,
            partial_writes: &self.partial_writes,
        };
        while let Some(envelopes) = self.next_batch(store.max_batch()) {
            for batches in load::split_into_chunks(store, state_cache.batches_for(envelopes)).await
            {
                self.serve_batches(&group_commit, batches).await;
            }
        }
    }

    async fn serve_batches(&self, group_commit: &GroupCommit<'_>, mut batches: Vec<WorkflowBatch>) {
        while !batches.is_empty() {
            batches = group_commit
                .state_cache
                .batches_for(self.commit_with_retries(group_commit, batches).await);
        }
    }

    /// Returns the requests that were split off so that the others conflict less.
    async fn commit_with_retries(
        &self,
        group_commit: &GroupCommit<'_>,
        mut batches: Vec<WorkflowBatch>,
    ) -> Vec<Envelope> {
        let mut split_off = Vec::new();
        for attempt in 1..=MAX_ATTEMPTS {
            batches = group_commit.commit(batches).await;
            if batches.is_empty() {
                return split_off;
            }
            if attempt >= WHOLE_BATCH_ATTEMPTS {
                // The requests keep the order in which they arrived.
                batches.iter_mut().for_each(|batch| {
                    drop(split_off.splice(0..0, batch.split_off_half(MIN_BATCH)))
                });
            }
        }
        for batch in batches {
            group_commit.state_cache.remove_placeholder(batch.id);
            let error = last_error(&batch);
            batch
                .envelopes
                .into_iter()
                .for_each(|envelope| envelope.send_reply(Err(error.clone())));
        }
        split_off
    }
}

/// Returns the error for requests that could not be written in any attempt.
fn last_error(batch: &WorkflowBatch) -> EngineError {
    match batch.unanswered.as_deref() {
        Some(StoreError::Unknown { reason }) => StoreError::Unavailable {
            reason: reason.clone(),
        }
        .into(),
        Some(error) => error.clone().into(),
        None => EngineError::Contended { workflow: batch.id },
    }
}
