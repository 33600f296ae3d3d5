//! Lock for expensive work, fair among callers.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::{Arc, Mutex};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::time::timeout;

use crate::http::lock;
use crate::http::problem::{Code, Problem};
use crate::http::quota::{Caller, QUOTA_TIMEOUT};

/// Most waiting requests of one caller. Further ones would not get the lock in time.
const MAX_WAITING_PER_CALLER: usize = 64;

/// Lock that one request holds at a time. One request of each caller competes for it; the caller's
/// further requests wait behind that one.
#[derive(Debug)]
pub(crate) struct FairLock {
    /// Name of the work, as the beginning of a sentence in problems.
    activity: &'static str,
    lock: Semaphore,
    caller_locks: Mutex<BTreeMap<Caller, Arc<Semaphore>>>,
}

/// Held lock, until it is dropped.
#[derive(Debug)]
pub(crate) struct FairGuard<'a> {
    _lock: SemaphorePermit<'a>,
    _caller: OwnedSemaphorePermit,
}

impl FairLock {
    pub(crate) const fn new(activity: &'static str) -> Self {
        Self {
            activity,
            lock: Semaphore::const_new(1),
            caller_locks: Mutex::new(BTreeMap::new()),
        }
    }

    /// Acquires the lock. Dropping the future gives up the place in the queue.
    ///
    /// # Errors
    /// The lock was not free in time, or too many requests of the caller wait already.
    pub(crate) async fn acquire(&self, caller: &Caller) -> Result<FairGuard<'_>, Problem> {
        let caller_lock = self.caller_lock(caller);
        // References: the table, this request, and the request of the caller that competes or holds
        // the lock.
        if Arc::strong_count(&caller_lock) > MAX_WAITING_PER_CALLER + 2 {
            return Err(self.busy(format_args!(
                "{MAX_WAITING_PER_CALLER} requests of this caller wait already"
            )));
        }
        let acquired = timeout(QUOTA_TIMEOUT, self.wait(caller_lock)).await;
        acquired.map_err(|_| {
            self.busy(format_args!(
                "this one's turn did not come for {} s",
                QUOTA_TIMEOUT.as_secs()
            ))
        })
    }

    async fn wait(&self, caller_lock: Arc<Semaphore>) -> FairGuard<'_> {
        let caller_permit = caller_lock.acquire_owned().await.expect("nobody closes it");
        let lock_permit = self.lock.acquire().await.expect("nobody closes it");
        FairGuard {
            _lock: lock_permit,
            _caller: caller_permit,
        }
    }

    fn busy(&self, reason: impl Display) -> Problem {
        Problem::new(
            Code::Overloaded,
            format!("{} one at a time, and {reason}: try again", self.activity),
        )
    }

    fn caller_lock(&self, caller: &Caller) -> Arc<Semaphore> {
        let mut caller_locks = lock(&self.caller_locks);
        caller_locks.retain(|_, caller_lock| Arc::strong_count(caller_lock) > 1);
        caller_locks
            .entry(caller.clone())
            .or_insert_with(|| Arc::new(Semaphore::new(1)))
            .clone()
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Future as _, poll_fn};
    use std::task::Poll;

    use super::*;

    /// Sixty requests of one caller waited before the only one of another, which was refused after
    /// ten seconds.
    #[tokio::test]
    async fn a_single_request_waits_for_one_of_each_other_caller() {
        let turns = FairLock::new("tests are made");
        let [many, few] = ["many", "few"].map(|name| Caller::Token(name.to_owned()));
        let first = turns.acquire(&many).await.unwrap();
        let mut queue: Vec<_> = (0..MAX_WAITING_PER_CALLER)
            .map(|_| Box::pin(turns.acquire(&many)))
            .collect();
        let mut other = Box::pin(turns.acquire(&few));
        poll_fn(|context| {
            let waiting = queue
                .iter_mut()
                .all(|turn| turn.as_mut().poll(context).is_pending());
            assert!(waiting && other.as_mut().poll(context).is_pending());
            Poll::Ready(())
        })
        .await;
        let refused = turns.acquire(&many).await.unwrap_err();
        assert_eq!(
            refused.detail(),
            "tests are made one at a time, and 64 requests of this caller wait already: try again"
        );
        drop(first);
        drop(other.await.unwrap());
        for turn in queue {
            drop(turn.await.unwrap());
        }
        turns.caller_lock(&few);
        assert_eq!(
            turns.caller_locks.lock().unwrap().len(),
            1,
            "nobody else stands in line"
        );
    }
}
