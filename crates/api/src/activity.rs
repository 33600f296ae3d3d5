//! What is counted of workflows, and what was seen of the queues when somebody last looked.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// Something that is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A workflow was created.
    Created,
    /// A job was handed to a worker.
    Claimed,
    /// An attempt succeeded.
    Succeeded,
    /// An attempt failed, and the job with it.
    Failed,
    /// An attempt failed, and another follows.
    TriedAgain,
    /// A lease was extended.
    Extended,
    /// A report or an extension named a lease that was lost.
    LeaseLost,
    /// A request arrived.
    Request,
    /// A request, or an item of it, failed because of the store.
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
pub struct QueueSample {
    /// Its name.
    pub name: String,
    /// Ready jobs.
    pub ready: u64,
    /// Seconds for which the oldest has been ready.
    pub age: u64,
    /// Workers that wait for a job of it.
    pub waiting_workers: u64,
}

/// All counters of the workflows thread.
#[derive(Debug, Default)]
pub struct Activity {
    counters: [AtomicU64; NAMES.len()],
    queues: Mutex<Vec<QueueSample>>,
    /// Somebody looked since the queues were sampled.
    wanted: AtomicBool,
}

impl Activity {
    /// Activity `number` of these.
    pub fn add(&self, event: Event, number: u64) {
        self.counters[event as usize].fetch_add(number, Relaxed);
    }

    /// Names and values of all counters.
    pub fn each(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        NAMES.into_iter().zip(self.counters.iter().map(|counter| counter.load(Relaxed)))
    }

    /// The queues as they were a few seconds ago; and they will be looked at again soon.
    pub fn queues(&self) -> Vec<QueueSample> {
        self.wanted.store(true, Relaxed);
        self.queues.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether somebody looked at the queues since this was asked last.
    pub fn is_wanted(&self) -> bool {
        self.wanted.swap(false, Relaxed)
    }

    /// Keeps what was seen of the queues.
    pub fn put_queues(&self, samples: Vec<QueueSample>) {
        *self.queues.lock().unwrap_or_else(PoisonError::into_inner) = samples;
    }
}
