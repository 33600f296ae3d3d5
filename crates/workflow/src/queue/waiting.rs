//! Workers that wait for ready jobs. Some get jobs leased by the write that makes these jobs ready,
//! without another claim.

use std::mem;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use super::{ExcludedJobs, Queue, QueueCache, Waiter};
use crate::engine::actor::answer::LeasedJob;
use crate::model::workflow_state::WorkerName;
use crate::model::{JobIndex, WorkflowId};

/// A worker that waits for jobs. Dropping it ends the wait.
#[derive(Debug)]
pub(crate) struct Waiting<'a> {
    queues: &'a QueueCache,
    names: &'a [String],
    waiter: Arc<Waiter>,
    /// Whether the worker is counted among those that accept jobs as they become ready.
    is_counted: bool,
}

impl QueueCache {
    /// Starts to wait for jobs of these handlers, or of all handlers if `None`, without the jobs of
    /// `except`. Jobs that arrive before the call of [`Waiting::arrived`] are not missed. With a
    /// `waiting_claim`, jobs that become ready during that call may arrive leased.
    pub(crate) fn start_waiting<'a>(
        &'a self,
        names: &'a [String],
        handlers: Option<&[String]>,
        except: ExcludedJobs,
        waiting_claim: Option<WaitingClaim>,
    ) -> Waiting<'a> {
        let handlers = handlers.map(<[String]>::to_vec);
        let waiter = Arc::new(Waiter {
            except,
            handlers,
            claim: waiting_claim,
            ..Waiter::default()
        });
        let mut by_name = self.lock();
        for name in names {
            let queue = self.queue_mut(&mut by_name, name);
            queue.last_requested_at = Some(self.now());
            queue.has_waiters();
            queue.waiting.push_back(Arc::clone(&waiter));
        }
        drop(by_name);
        Waiting {
            queues: self,
            names,
            waiter,
            is_counted: false,
        }
    }
}

impl Waiting<'_> {
    /// Waits until there may be a job. Returns jobs that are leased to this worker now. If there
    /// are none, the worker must claim.
    ///
    /// # Cancellation
    /// If this worker was woken, dropping the future wakes another one instead. Jobs that were
    /// leased to it return to their queues.
    pub(crate) async fn arrived(mut self) -> Vec<(WorkflowId, LeasedJob)> {
        if self.waiter.claim.is_some() {
            self.is_counted = true;
            self.queues.waiting_claims.fetch_add(1, Relaxed);
            // Offers are accepted only from here on: what the worker claimed before this call is
            // enough.
            self.waiter.accepts_offers.store(true, Release);
        }
        self.waiter.notify.notified().await;
        self.queues.wake_ups.fetch_add(1, Relaxed);
        // This worker will claim, so its drop need not wake another one.
        self.names = &[];
        self.waiter.close()
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.is_counted {
            self.queues.waiting_claims.fetch_sub(1, Relaxed);
        }
        // Jobs for which the worker was reserved return to their queues, which wakes other workers.
        if self.waiter.is_done.swap(true, AcqRel) && !self.waiter.is_reserved.load(Acquire) {
            // The worker was woken and leaves without a claim, so another worker must be woken.
            self.names
                .iter()
                .for_each(|name| self.queues.wake_one(name));
        }
        drop(self.waiter.close());
    }
}

/// The claim that a waiting worker would make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WaitingClaim {
    pub(crate) worker: WorkerName,
    pub(crate) lease: Duration,
    /// Maximum number of jobs.
    pub(crate) limit: usize,
}

/// Jobs that were delivered to a waiting worker.
#[derive(Debug)]
pub(crate) enum Delivery {
    Jobs(Vec<(WorkflowId, LeasedJob)>),
    /// The worker no longer waits.
    Closed,
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
    claim: WaitingClaim,
}

impl QueueCache {
    /// Whether a worker waits that accepts jobs as they become ready.
    pub(crate) fn has_waiting_claims(&self) -> bool {
        self.waiting_claims.load(Acquire) > 0
    }

    /// Removes the first waiting worker that may run a job which is about to become ready. `None`
    /// if there is no such worker, the queue is paused, or the queue has a more urgent job.
    pub(crate) fn reserve_worker(&self, job: JobOffer<'_>) -> Option<ReservedWorker> {
        if !self.has_waiting_claims() {
            return None;
        }
        let mut by_name = self.lock();
        let queue = by_name
            .get_mut(job.queue)
            .filter(|queue| queue.may_lease_directly(job.priority))?;
        let reserved = queue.reserve_worker(job)?;
        queue.last_requested_at = Some(self.now());
        Some(reserved)
    }
}

impl Queue {
    fn reserve_worker(&mut self, job: JobOffer<'_>) -> Option<ReservedWorker> {
        let accepts = |waiter: &Waiter| waiter.accepts_offers.load(Acquire) && waiter.accepts(job);
        let mut at = 0;
        while let Some(waiter) = self.waiting.get(at) {
            let Some(claim) = waiter.claim.clone().filter(|_| accepts(waiter)) else {
                at += 1;
                continue;
            };
            let waiter = self.waiting.remove(at).expect("it was just looked at");
            if !waiter.is_done.swap(true, AcqRel) {
                waiter.is_reserved.store(true, Release);
                return Some(ReservedWorker { waiter, claim });
            }
        }
        None
    }
}

impl Waiter {
    fn accepts(&self, job: JobOffer<'_>) -> bool {
        self.can_run(job.handler) && !self.except.contains(job.workflow, job.job)
    }

    fn lock_delivery(&self) -> MutexGuard<'_, Delivery> {
        self.delivery.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the delivered jobs and accepts no more. Later deliveries are returned to their
    /// queues.
    pub(super) fn close(&self) -> Vec<(WorkflowId, LeasedJob)> {
        match mem::replace(&mut *self.lock_delivery(), Delivery::Closed) {
            Delivery::Jobs(jobs) => jobs,
            Delivery::Closed => Vec::new(),
        }
    }
}

impl ReservedWorker {
    /// The claim that the worker would make.
    pub(crate) fn claim(&self) -> &WaitingClaim {
        &self.claim
    }

    /// Whether the worker may run another job of the queue for which it was chosen.
    pub(crate) fn accepts(&self, job: JobOffer<'_>) -> bool {
        self.waiter.accepts(job)
    }

    /// Delivers jobs that are leased to the worker. If the worker has left, they return to their
    /// queues.
    pub(crate) fn deliver(self, jobs: Vec<(WorkflowId, LeasedJob)>) {
        let mut delivery = self.waiter.lock_delivery();
        let undelivered = match &mut *delivery {
            Delivery::Jobs(all) => {
                all.extend(jobs);
                Vec::new()
            }
            Delivery::Closed => jobs,
        };
        drop(delivery);
        // Dropping undelivered jobs sends requests to actors, so the lock is released before.
        drop(undelivered);
    }
}

impl Drop for ReservedWorker {
    fn drop(&mut self) {
        self.waiter.notify.notify_one();
    }
}
