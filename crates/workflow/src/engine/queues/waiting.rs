//! Workers that wait for ready jobs.

use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::QueueCache;
use super::excluded_jobs::ExcludedJobs;
use super::queue::Waiter;
use super::waiting_claim::WaitingClaim;
use crate::engine::actor::answer::Leased;
use crate::id::WorkflowId;

/// A worker that waits for jobs. Dropping it ends the wait.
#[derive(Debug)]
pub(crate) struct Waiting<'a> {
    queues: &'a QueueCache,
    names: &'a [String],
    waiter: Arc<Waiter>,
    /// Whether the worker is counted among those that accept jobs as they become ready.
    takes: bool,
}

impl QueueCache {
    /// Starts to wait for jobs of these handlers, or of all handlers if `None`, without the jobs of
    /// `except`. Jobs that arrive before the call of [`Waiting::arrived`] are not missed. With a
    /// `waiting_claim`, jobs that become ready during that call may arrive leased.
    pub(crate) fn wait<'a>(
        &'a self,
        names: &'a [String],
        handlers: Option<&[String]>,
        except: ExcludedJobs,
        lessee: Option<WaitingClaim>,
    ) -> Waiting<'a> {
        let handlers = handlers.map(<[String]>::to_vec);
        let waiter = Arc::new(Waiter {
            except,
            handlers,
            lessee,
            ..Waiter::default()
        });
        let mut each = self.lock();
        for name in names {
            let queue = self.entry(&mut each, name);
            queue.asked = Some(self.now());
            queue.is_wanted();
            queue.waiting.push_back(Arc::clone(&waiter));
        }
        drop(each);
        self.note_waiting();
        Waiting {
            queues: self,
            names,
            waiter,
            takes: false,
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
    pub(crate) async fn arrived(mut self) -> Vec<(WorkflowId, Leased)> {
        if self.waiter.lessee.is_some() {
            self.takes = true;
            self.queues.takers.fetch_add(1, Relaxed);
            // Offers are accepted only from here on: what the worker claimed before this call is
            // enough.
            self.waiter.is_open.store(true, Release);
        }
        self.waiter.notify.notified().await;
        self.queues.woken.fetch_add(1, Relaxed);
        // This worker will claim, so its drop need not wake another one.
        self.names = &[];
        self.waiter.leave()
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.takes {
            self.queues.takers.fetch_sub(1, Relaxed);
        }
        // Jobs for which the worker was reserved return to their queues, which wakes other workers.
        if self.waiter.done.swap(true, AcqRel) && !self.waiter.is_chosen.load(Acquire) {
            // The worker was woken and leaves without a claim, so another worker must be woken.
            self.names
                .iter()
                .for_each(|name| self.queues.wake_one(name));
        }
        drop(self.waiter.leave());
    }
}
