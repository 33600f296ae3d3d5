//! The desk of a partition serves the requests about its workflows in rounds: all requests that wait are applied to the states in
//! memory, and what changed is written with one call of the store.

pub(crate) mod answer;
mod ended;
mod entry;
mod event;
mod group;
mod hand_out;
mod load;
pub(crate) mod play;
pub(crate) mod request;
mod round;
pub(crate) mod states;
pub(crate) mod torn;
pub(crate) mod undelivered;

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use self::group::Group;
use self::play::Player;
use self::request::Posted;
use self::round::Round;
use self::states::States;
use self::torn::Torn;
use self::undelivered::GiveBack;
use super::context::Context;
use super::error::EngineError;
use crate::id::Partition;
use crate::store::Store;
use crate::store::error::StoreError;

/// The most requests that may wait. Each has a caller.
const WAITING: usize = 65_536;
/// How often requests are played when other servers keep writing first.
const ATTEMPTS: usize = 32;
/// How often all of them together. Then ever fewer at a time: who has less to do is faster.
const TOGETHER: usize = 2;
/// So few that fewer would not be faster.
const FEW: usize = 16;

/// The desk of one partition.
#[derive(Debug)]
pub(crate) struct Desk {
    partition: Partition,
    inbox: Mutex<Inbox>,
    pub(crate) torn: Torn,
}

#[derive(Debug, Default)]
struct Inbox {
    waiting: VecDeque<Posted>,
    /// Whether a task serves the desk.
    busy: bool,
    closed: bool,
}

impl Desk {
    pub(crate) fn new(partition: Partition) -> Self {
        Self {
            partition,
            inbox: Mutex::default(),
            torn: Torn::default(),
        }
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds requests to those that wait. Returns true when the caller must start a task that serves the desk.
    ///
    /// # Errors
    /// Too many wait, or the engine is closing. The requests are returned.
    pub(crate) fn post(&self, posted: Vec<Posted>) -> Result<bool, (Vec<Posted>, EngineError)> {
        let mut inbox = self.inbox();
        if inbox.closed {
            return Err((posted, EngineError::Closed));
        }
        if !inbox.waiting.is_empty() && inbox.waiting.len() + posted.len() > WAITING {
            return Err((posted, EngineError::Overloaded));
        }
        inbox.waiting.extend(posted);
        Ok(!std::mem::replace(&mut inbox.busy, true))
    }

    /// The task that served the desk is gone: the next request starts another. Callers that wait are told that the engine is closed.
    pub(crate) fn abandon(&self) {
        let mut inbox = self.inbox();
        inbox.busy = false;
        let waiting = std::mem::take(&mut inbox.waiting);
        // Dropping them may post requests, which takes the lock again.
        drop(inbox);
        drop(waiting);
    }

    pub(crate) fn close(&self) {
        self.inbox().closed = true;
    }

    fn next_round(&self, most: usize) -> Option<Vec<Posted>> {
        let mut inbox = self.inbox();
        let size = inbox.waiting.len().min(most);
        inbox.busy = size > 0;
        inbox.busy.then(|| inbox.waiting.drain(..size).collect())
    }

    /// Serves all requests that wait. `give_back` is called with each lease that does not reach its worker.
    pub(crate) async fn serve(
        &self,
        context: &Context,
        store: &Store,
        states: &States,
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
        while let Some(posted) = self.next_round(store.round()) {
            for groups in load::pieces(store, states.take(posted)).await {
                self.serve_groups(&round, groups).await;
            }
        }
    }

    async fn serve_groups(&self, round: &Round<'_>, mut groups: Vec<Group>) {
        while !groups.is_empty() {
            groups = round.states.take(self.try_groups(round, groups).await);
        }
    }

    /// Returns the requests that were left out, for others to be faster.
    async fn try_groups(&self, round: &Round<'_>, mut groups: Vec<Group>) -> Vec<Posted> {
        let mut left = Vec::new();
        for attempt in 1..=ATTEMPTS {
            groups = round.run(groups).await;
            if groups.is_empty() {
                return left;
            }
            if attempt >= TOGETHER {
                // In the order in which they came.
                groups
                    .iter_mut()
                    .for_each(|group| drop(left.splice(0..0, group.halve(FEW))));
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
