//! What is counted of workflows, and what was seen of the queues when somebody last looked.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// Something that is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    Created,
    Claimed,
    Succeeded,
    Failed,
    TriedAgain,
    Extended,
    LeaseLost,
    Request,
    StoreError,
}

/// Names of the counters, in the order of [`Event`].
const NAMES: [&str; 9] = [
    "tidegate.workflows.created",
    "tidegate.jobs.claimed",
    "tidegate.jobs.succeeded",
    "tidegate.jobs.failed",
    "tidegate.jobs.tried_again",
    "tidegate.leases.extended",
    "tidegate.leases.lost",
    "tidegate.api.requests",
    "tidegate.api.store_errors",
];

/// What a queue looked like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct QueueSample {
    pub(crate) name: String,
    pub(crate) ready: u64,
    /// Seconds for which the oldest has been ready.
    pub(crate) age: u64,
    pub(crate) waiting_workers: u64,
}

/// All counters of the workflows thread.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    counters: [AtomicU64; NAMES.len()],
    queues: Mutex<Vec<QueueSample>>,
    /// Somebody looked since the queues were sampled.
    wanted: AtomicBool,
}

impl Counts {
    pub(crate) fn add(&self, event: Event, number: u64) {
        self.counters[event as usize].fetch_add(number, Relaxed);
    }

    pub(crate) fn each(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        NAMES.into_iter().zip(self.counters.iter().map(|counter| counter.load(Relaxed)))
    }

    /// The queues as they were a few seconds ago; and they will be looked at again soon.
    pub(crate) fn queues(&self) -> Vec<QueueSample> {
        self.wanted.store(true, Relaxed);
        self.queues.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.wanted.swap(false, Relaxed)
    }

    pub(super) fn put_queues(&self, samples: Vec<QueueSample>) {
        *self.queues.lock().unwrap_or_else(PoisonError::into_inner) = samples;
    }
}
