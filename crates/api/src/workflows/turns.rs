//! Work that is done once at a time, for callers in turn.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use crate::edge::room::Caller;

/// Of each caller, one request stands in line beside those of others; its further ones wait behind it.
#[derive(Debug)]
pub(super) struct Turns {
    one: Semaphore,
    lines: Mutex<HashMap<Caller, Arc<Semaphore>>>,
}

/// A turn, until this is dropped.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    _all: SemaphorePermit<'a>,
    _own: OwnedSemaphorePermit,
}

impl Turns {
    pub(super) fn new() -> Self {
        Self { one: Semaphore::new(1), lines: Mutex::default() }
    }

    /// Waits for the caller's turn. Dropping the future gives up its place.
    pub(super) async fn wait(&self, caller: &Caller) -> Turn<'_> {
        let own = self.line(caller).acquire_owned().await.expect("nobody closes it");
        let all = self.one.acquire().await.expect("nobody closes it");
        Turn { _all: all, _own: own }
    }

    fn line(&self, caller: &Caller) -> Arc<Semaphore> {
        // Each change is complete or absent.
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.retain(|_, line| Arc::strong_count(line) > 1);
        lines.entry(caller.clone()).or_insert_with(|| Arc::new(Semaphore::new(1))).clone()
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Future as _, poll_fn};
    use std::task::Poll;

    use super::*;

    /// Sixty requests of one caller stood in line before the only one of another, which was refused after ten seconds.
    #[tokio::test]
    async fn who_asks_once_waits_for_one_of_each_other_caller() {
        let turns = Turns::new();
        let [many, few] = ["many", "few"].map(|name| Caller::Token(name.to_owned()));
        let first = turns.wait(&many).await;
        let mut queue: Vec<_> = (0..60).map(|_| Box::pin(turns.wait(&many))).collect();
        let mut other = Box::pin(turns.wait(&few));
        poll_fn(|context| {
            let waiting = queue.iter_mut().all(|turn| turn.as_mut().poll(context).is_pending());
            assert!(waiting && other.as_mut().poll(context).is_pending());
            Poll::Ready(())
        })
        .await;
        drop(first);
        drop(other.await);
        for turn in queue {
            drop(turn.await);
        }
        turns.line(&few);
        assert_eq!(turns.lines.lock().unwrap().len(), 1, "nobody else stands in line");
    }
}
