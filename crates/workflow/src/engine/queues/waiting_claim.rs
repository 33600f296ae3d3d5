//! Waiting workers that get jobs leased by the write that makes these jobs ready, without another
//! claim.

use std::mem;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use super::QueueCache;
use super::queue::{Queue, Waiter};
use crate::engine::actor::answer::Leased;
use crate::id::{JobIndex, WorkflowId};
use crate::state::Worker;

/// The claim that a waiting worker would make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WaitingClaim {
    pub(crate) worker: Worker,
    pub(crate) lease: Duration,
    /// Maximum number of jobs.
    pub(crate) limit: usize,
}

/// Jobs that were delivered to a waiting worker.
#[derive(Debug)]
pub(super) enum Delivery {
    Jobs(Vec<(WorkflowId, Leased)>),
    /// The worker no longer waits.
    Left,
}

impl Default for Delivery {
    fn default() -> Self {
        Self::Jobs(Vec::new())
    }
}

/// A ready job that is offered to waiting workers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct JobOffer<'a> {
    pub(crate) queue: &'a str,
    pub(crate) handler: &'a str,
    pub(crate) priority: u8,
    pub(crate) workflow: WorkflowId,
    pub(crate) job: JobIndex,
}

/// A worker that was chosen among the waiting ones and no longer waits. Dropping it wakes the
/// worker, which has its jobs by then or claims some.
#[derive(Debug)]
pub(crate) struct ReservedWorker {
    waiter: Arc<Waiter>,
    lessee: WaitingClaim,
}

impl QueueCache {
    /// Whether a worker waits that accepts jobs as they become ready.
    pub(crate) fn has_waiting_claims(&self) -> bool {
        self.takers.load(Acquire) > 0
    }

    /// Removes the first waiting worker that may run a job which is about to become ready. `None`
    /// if there is no such worker, the queue is paused, or the queue has a more urgent job.
    pub(crate) fn choose(&self, job: JobOffer<'_>) -> Option<ReservedWorker> {
        if !self.has_waiting_claims() {
            return None;
        }
        let mut each = self.lock();
        let queue = each
            .get_mut(job.queue)
            .filter(|queue| queue.is_free_for(job.priority))?;
        let chosen = queue.choose(job)?;
        queue.asked = Some(self.now());
        Some(chosen)
    }
}

impl Queue {
    fn choose(&mut self, job: JobOffer<'_>) -> Option<ReservedWorker> {
        let takes = |waiter: &Waiter| waiter.is_open.load(Acquire) && waiter.takes(job);
        let mut at = 0;
        while let Some(waiter) = self.waiting.get(at) {
            let Some(lessee) = waiter.lessee.clone().filter(|_| takes(waiter)) else {
                at += 1;
                continue;
            };
            let waiter = self.waiting.remove(at).expect("it was just looked at");
            if !waiter.done.swap(true, AcqRel) {
                waiter.is_chosen.store(true, Release);
                return Some(ReservedWorker { waiter, lessee });
            }
        }
        None
    }
}

impl Waiter {
    fn takes(&self, job: JobOffer<'_>) -> bool {
        self.can_run(job.handler) && !self.except.has(job.workflow, job.job)
    }

    fn handed(&self) -> MutexGuard<'_, Delivery> {
        self.handed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the delivered jobs and accepts no more. Later deliveries are returned to their
    /// queues.
    pub(super) fn leave(&self) -> Vec<(WorkflowId, Leased)> {
        match mem::replace(&mut *self.handed(), Delivery::Left) {
            Delivery::Jobs(jobs) => jobs,
            Delivery::Left => Vec::new(),
        }
    }
}

impl ReservedWorker {
    /// The claim that the worker would make.
    pub(crate) fn lessee(&self) -> &WaitingClaim {
        &self.lessee
    }

    /// Whether the worker may run another job of the queue for which it was chosen.
    pub(crate) fn takes(&self, job: JobOffer<'_>) -> bool {
        self.waiter.takes(job)
    }

    /// Delivers jobs that are leased to the worker. If the worker has left, they return to their
    /// queues.
    pub(crate) fn deliver(self, jobs: Vec<(WorkflowId, Leased)>) {
        let mut handed = self.waiter.handed();
        let unwanted = match &mut *handed {
            Delivery::Jobs(all) => {
                all.extend(jobs);
                Vec::new()
            }
            Delivery::Left => jobs,
        };
        drop(handed);
        // Dropping undelivered jobs sends requests to actors, so the lock is released before.
        drop(unwanted);
    }
}

impl Drop for ReservedWorker {
    fn drop(&mut self) {
        self.waiter.notify.notify_one();
    }
}
