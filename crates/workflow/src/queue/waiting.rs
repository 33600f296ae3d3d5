//! Workers that wait for ready jobs.

pub(crate) mod waiting_claim;

use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use self::waiting_claim::WaitingClaim;
use super::cache::QueueCache;
use super::dequeue::excluded_jobs::ExcludedJobs;
use super::queue::Waiter;
use crate::engine::actor::answer::LeasedJob;
use crate::model::id::WorkflowId;

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
        self.record_wait();
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
