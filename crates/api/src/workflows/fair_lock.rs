//! Lock for expensive work, fair among callers.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::time::timeout;

use crate::http::problem::{Code, Problem};
use crate::http::quota::{Caller, QUOTA_TIMEOUT};

/// Most waiting requests of one caller. Further ones would not get the lock in time.
const MOST_WAITING: usize = 64;

/// Lock that one request holds at a time. One request of each caller competes for it; the caller's
/// further requests wait behind that one.
#[derive(Debug)]
pub(crate) struct Turns {
    /// Name of the work, as the beginning of a sentence in problems.
    what: &'static str,
    one: Semaphore,
    lines: Mutex<BTreeMap<Caller, Arc<Semaphore>>>,
}

/// Held lock, until it is dropped.
#[derive(Debug)]
pub(crate) struct FairGuard<'a> {
    _all: SemaphorePermit<'a>,
    _own: OwnedSemaphorePermit,
}

impl Turns {
    pub(crate) const fn new(what: &'static str) -> Self {
        Self {
            what,
            one: Semaphore::const_new(1),
            lines: Mutex::new(BTreeMap::new()),
        }
    }

    /// Acquires the lock. Dropping the future gives up the place in the queue.
    ///
    /// # Errors
    /// The lock was not free in time, or too many requests of the caller wait already.
    pub(crate) async fn acquire(&self, caller: &Caller) -> Result<FairGuard<'_>, Problem> {
        let line = self.line(caller);
        // References: the table, this request, and the request of the caller that competes or holds
        // the lock.
        if Arc::strong_count(&line) > MOST_WAITING + 2 {
            return Err(self.busy(format_args!(
                "{MOST_WAITING} requests of this caller wait already"
            )));
        }
        let turn = timeout(QUOTA_TIMEOUT, self.wait(line)).await;
        turn.map_err(|_| {
            self.busy(format_args!(
                "this one's turn did not come for {} s",
                QUOTA_TIMEOUT.as_secs()
            ))
        })
    }

    async fn wait(&self, line: Arc<Semaphore>) -> FairGuard<'_> {
        let own = line.acquire_owned().await.expect("nobody closes it");
        let all = self.one.acquire().await.expect("nobody closes it");
        FairGuard {
            _all: all,
            _own: own,
        }
    }

    fn busy(&self, reason: impl Display) -> Problem {
        Problem::new(
            Code::Overloaded,
            format!("{} one at a time, and {reason}: try again", self.what),
        )
    }

    fn line(&self, caller: &Caller) -> Arc<Semaphore> {
        // Each change is complete or absent.
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.retain(|_, line| Arc::strong_count(line) > 1);
        lines
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
    async fn who_asks_once_waits_for_one_of_each_other_caller() {
        let turns = Turns::new("tests are made");
        let [many, few] = ["many", "few"].map(|name| Caller::Token(name.to_owned()));
        let first = turns.acquire(&many).await.unwrap();
        let mut queue: Vec<_> = (0..MOST_WAITING)
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
        turns.line(&few);
        assert_eq!(
            turns.lines.lock().unwrap().len(),
            1,
            "nobody else stands in line"
        );
    }
}
