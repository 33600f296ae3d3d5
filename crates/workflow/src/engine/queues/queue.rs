//! The ready jobs of one queue, and the workers that wait for them.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hashbrown::HashSet;
use tokio::sync::Notify;

use crate::record::rows::{ReadyPlace, ReadyRow};
use crate::time::Timestamp;

/// How many ready jobs of one queue are kept in memory, about 60 bytes each. The others are read from the store when these are used up.
const KEPT: usize = 16_384;

#[derive(Debug, Default)]
pub(super) struct Queue {
    pub(super) heads: BTreeSet<ReadyPlace>,
    /// Taken out to be claimed; a read of the store that began before must not bring them back.
    pub(super) claimed: HashSet<ReadyPlace>,
    /// The store has no others, as far as is known.
    pub(super) complete: bool,
    pub(super) paused: bool,
    pub(super) waiting: VecDeque<Arc<Waiter>>,
    /// When a worker last asked for its jobs.
    pub(super) asked: Option<Timestamp>,
}

#[derive(Debug, Default)]
pub(super) struct Waiter {
    pub(super) notify: Notify,
    /// Whether it was woken or has left.
    pub(super) done: AtomicBool,
}

/// The queue of a row that any worker may take, and the job's place in it.
pub(super) fn read_row(row: &[u8]) -> Option<(&str, ReadyPlace)> {
    let row = ReadyRow::read(row)?;
    // A job with limits is not handed out before its limits were asked.
    row.limit_key.is_empty().then_some((row.queue, row.place))
}

impl Queue {
    pub(super) fn insert(&mut self, head: ReadyPlace) {
        self.heads.insert(head);
        if self.heads.len() > KEPT {
            self.heads.pop_last();
            self.complete = false;
        }
    }

    pub(super) fn wake(&mut self) {
        while let Some(waiter) = self.waiting.pop_front() {
            if !waiter.done.swap(true, Ordering::AcqRel) {
                return waiter.notify.notify_one();
            }
        }
    }

    /// Whether it can be forgotten. If its name is used again, the store is read again.
    pub(super) fn is_idle(&mut self) -> bool {
        !self.paused && self.heads.is_empty() && self.claimed.is_empty() && !self.is_wanted()
    }

    /// Whether a worker waits; forgets those that went away.
    pub(super) fn is_wanted(&mut self) -> bool {
        self.waiting.retain(|waiter| !waiter.done.load(Ordering::Acquire));
        !self.waiting.is_empty()
    }
}
