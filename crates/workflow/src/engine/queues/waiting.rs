//! Workers that wait for ready jobs.

use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};

use super::Queues;
use super::except::Except;
use super::queue::Waiter;

/// A worker that waits for work. When this is dropped, it no longer waits.
#[derive(Debug)]
pub(crate) struct Waiting<'a> {
    queues: &'a Queues,
    names: &'a [String],
    waiter: Arc<Waiter>,
}

impl Queues {
    /// Starts to wait for any job of these handlers, or of all, but those of `except`. Jobs that arrive before the call of [`Waiting::arrived`] are not missed.
    pub(crate) fn wait<'a>(&'a self, names: &'a [String], handlers: Option<&[String]>, except: Except) -> Waiting<'a> {
        let handlers = handlers.map(<[String]>::to_vec);
        let waiter = Arc::new(Waiter { except, handlers, ..Waiter::default() });
        let mut each = self.each();
        for name in names {
            let queue = self.entry(&mut each, name);
            queue.asked = Some(self.now());
            queue.is_wanted();
            queue.waiting.push_back(Arc::clone(&waiter));
        }
        drop(each);
        self.note_waiting();
        Waiting { queues: self, names, waiter }
    }
}

impl Waiting<'_> {
    /// Returns when there may be a job.
    ///
    /// # Cancellation
    /// If this worker was woken, dropping the future wakes another one instead.
    pub(crate) async fn arrived(mut self) {
        self.waiter.notify.notified().await;
        self.queues.woken.fetch_add(1, Relaxed);
        // This worker will claim, so no other has to be woken when this is dropped.
        self.names = &[];
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.waiter.done.swap(true, AcqRel) {
            // It was woken and leaves without the work: another worker must be woken.
            self.names.iter().for_each(|name| self.queues.wake_one(name));
        }
    }
}
