//! The actor of a partition serves the requests about its workflows in batches. It applies all
//! queued requests to the states in memory, and writes what changed with one call of the store.

pub(crate) mod answer;
pub(crate) mod apply;
mod assign;
mod batch;
pub(crate) mod cache;
mod cached_workflow;
mod commit;
mod ended;
mod event;
mod load;
pub(crate) mod partial_writes;
pub(crate) mod request;
pub(crate) mod undelivered;

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use self::apply::Player;
use self::batch::WorkflowBatch;
use self::cache::StateCache;
use self::commit::Round;
use self::partial_writes::PartialWrites;
use self::request::Envelope;
use self::undelivered::GiveBack;
use super::context::Context;
use super::error::EngineError;
use crate::id::Partition;
use crate::store::Store;
use crate::store::error::StoreError;

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
    inbox: Mutex<Mailbox>,
    pub(crate) torn: PartialWrites,
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
            inbox: Mutex::default(),
            torn: PartialWrites::default(),
        }
    }

    fn inbox(&self) -> MutexGuard<'_, Mailbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues requests. Returns true if the caller must start a task that runs the actor.
    ///
    /// # Errors
    /// Too many requests are queued, or the engine is closing. The requests are returned.
    pub(crate) fn enqueue(
        &self,
        posted: Vec<Envelope>,
    ) -> Result<bool, (Vec<Envelope>, EngineError)> {
        let mut inbox = self.inbox();
        if inbox.closed {
            return Err((posted, EngineError::Closed));
        }
        if !inbox.queued.is_empty() && inbox.queued.len() + posted.len() > MAX_QUEUED {
            return Err((posted, EngineError::Overloaded));
        }
        inbox.queued.extend(posted);
        Ok(!std::mem::replace(&mut inbox.running, true))
    }

    /// Handles the end of the task that ran the actor: the next request starts another task.
    /// Callers of queued requests get the error that the engine is closed.
    pub(crate) fn on_task_lost(&self) {
        let mut inbox = self.inbox();
        inbox.running = false;
        let waiting = std::mem::take(&mut inbox.queued);
        // Dropping the requests may queue others, which takes the lock again.
        drop(inbox);
        drop(waiting);
    }

    pub(crate) fn close(&self) {
        self.inbox().closed = true;
    }

    fn next_batch(&self, most: usize) -> Option<Vec<Envelope>> {
        let mut inbox = self.inbox();
        let size = inbox.queued.len().min(most);
        inbox.running = size > 0;
        inbox.running.then(|| inbox.queued.drain(..size).collect())
    }

    /// Serves all queued requests. `releaser` returns each lease that does not reach its worker.
    pub(crate) async fn run(
        &self,
        context: &Context,
        store: &Store,
        states: &StateCache,
        give_back: &GiveBack,
    ) {
        let player = Player {
            context,
            store,
            give_back,
        };
        let round = Round {
            player,
            partition: self.partition,
            states,
            torn: &self.torn,
        };
        while let Some(posted) = self.next_batch(store.round()) {
            for groups in load::pieces(store, states.take(posted)).await {
                self.serve_groups(&round, groups).await;
            }
        }
    }

    async fn serve_groups(&self, round: &Round<'_>, mut groups: Vec<WorkflowBatch>) {
        while !groups.is_empty() {
            groups = round
                .states
                .take(self.commit_with_retries(round, groups).await);
        }
    }

    /// Returns the requests that were split off so that the others conflict less.
    async fn commit_with_retries(
        &self,
        round: &Round<'_>,
        mut groups: Vec<WorkflowBatch>,
    ) -> Vec<Envelope> {
        let mut left = Vec::new();
        for attempt in 1..=MAX_ATTEMPTS {
            groups = round.commit(groups).await;
            if groups.is_empty() {
                return left;
            }
            if attempt >= WHOLE_BATCH_ATTEMPTS {
                // The requests keep the order in which they arrived.
                groups
                    .iter_mut()
                    .for_each(|group| drop(left.splice(0..0, group.split_off_half(MIN_BATCH))));
            }
        }
        for group in groups {
            round.states.give_up(group.id);
            let error = match group.refused.as_deref() {
                Some(StoreError::Unknown { reason }) => StoreError::Unavailable {
                    reason: reason.clone(),
                }
                .into(),
                Some(error) => error.clone().into(),
                None => EngineError::Contended { workflow: group.id },
            };
            group
                .posted
                .into_iter()
                .for_each(|posted| posted.answer(Err(error.clone())));
        }
        left
    }
}
