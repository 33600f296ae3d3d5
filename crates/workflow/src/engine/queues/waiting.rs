//! Workers that wait for ready jobs.

use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::QueueCache;
use super::excluded_jobs::ExcludedJobs;
use super::queue::Waiter;
use super::waiting_claim::WaitingClaim;
use crate::engine::actor::answer::Leased;
use crate::id::WorkflowId;

/// A worker that waits for work. When this is dropped, it no longer waits.
#[derive(Debug)]
pub(crate) struct Waiting<'a> {
    queues: &'a QueueCache,
    names: &'a [String],
    waiter: Arc<Waiter>,
    /// Whether it counts as one that takes jobs.
    takes: bool,
}

impl QueueCache {
    /// Starts to wait for any job of these handlers, or of all, but those of `except`. Jobs that arrive before the call of [`Waiting::arrived`] are not
    /// missed. With a `lessee`, jobs that become ready during that call may come leased.
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
    /// Returns when there may be a job, with those that are leased to this worker now. Without any it has to claim.
    ///
    /// # Cancellation
    /// If this worker was woken, dropping the future wakes another one instead. Jobs that were leased to it go back.
    pub(crate) async fn arrived(mut self) -> Vec<(WorkflowId, Leased)> {
        if self.waiter.lessee.is_some() {
            self.takes = true;
            self.queues.takers.fetch_add(1, Relaxed);
            // Only from here on: what it claimed before this call is enough.
            self.waiter.is_open.store(true, Release);
        }
        self.waiter.notify.notified().await;
        self.queues.woken.fetch_add(1, Relaxed);
        // This worker will claim, so no other has to be woken when this is dropped.
        self.names = &[];
        self.waiter.leave()
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.takes {
            self.queues.takers.fetch_sub(1, Relaxed);
        }
        // What it was chosen for goes back, and wakes others.
        if self.waiter.done.swap(true, AcqRel) && !self.waiter.is_chosen.load(Acquire) {
            // It was woken and leaves without the work: another worker must be woken.
            self.names
                .iter()
                .for_each(|name| self.queues.wake_one(name));
        }
        drop(self.waiter.leave());
    }
}
