//! Joins the replies to requests that were sent together, and wakes the caller once, after the last
//! reply. Actors on other threads would otherwise wake it for each reply.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use crate::engine::actor::answer::Answer;
use crate::engine::error::EngineError;

type Outcome = Result<Answer, EngineError>;

/// The replies to requests that were sent together.
#[derive(Debug)]
pub(crate) struct ReplySet {
    shared: Arc<Shared>,
}

/// Sends the reply to one request. If dropped without a reply, the caller gets the error that the
/// engine is closed.
#[derive(Debug)]
pub(crate) struct ReplySender {
    shared: Arc<Shared>,
    at: usize,
    sent: bool,
}

#[derive(Debug)]
struct Shared(Mutex<State>);

#[derive(Debug)]
struct State {
    each: Vec<Option<Outcome>>,
    /// Number of replies that are still to come.
    missing: usize,
    asker: ReplyWaiter,
}

#[derive(Debug)]
enum ReplyWaiter {
    Waiting(Option<Waker>),
    Gone,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores a reply. Returns it if the caller has gone.
    fn put(&self, at: usize, outcome: Outcome) -> Option<Outcome> {
        let mut locked = self.state();
        let state = &mut *locked;
        let ReplyWaiter::Waiting(waker) = &mut state.asker else {
            return Some(outcome);
        };
        state.each[at] = Some(outcome);
        state.missing -= 1;
        let waker = waker.take_if(|_| state.missing == 0);
        drop(locked);
        waker.into_iter().for_each(Waker::wake);
        None
    }
}

impl ReplySet {
    /// Creates a set for the replies to `number` requests.
    pub(crate) fn new(number: usize) -> Self {
        let each = (0..number).map(|_| None).collect();
        let state = State {
            each,
            missing: number,
            asker: ReplyWaiter::Waiting(None),
        };
        Self {
            shared: Arc::new(Shared(Mutex::new(state))),
        }
    }

    /// Returns the sender of the reply to request `index`. Must be called once for each request.
    pub(crate) fn reply(&self, at: usize) -> ReplySender {
        ReplySender {
            shared: Arc::clone(&self.shared),
            at,
            sent: false,
        }
    }

    /// Waits for all replies, which are in the order of the requests.
    ///
    /// # Cancellation
    /// When the future is dropped, replies are dropped as they come.
    pub(crate) async fn all(self) -> Vec<Outcome> {
        poll_fn(|context| {
            let mut state = self.shared.state();
            if state.missing > 0 {
                state.asker = ReplyWaiter::Waiting(Some(context.waker().clone()));
                return Poll::Pending;
            }
            let each = std::mem::take(&mut state.each);
            Poll::Ready(
                each.into_iter()
                    .map(|outcome| outcome.expect("none is missing"))
                    .collect(),
            )
        })
        .await
    }
}

impl Drop for ReplySet {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.asker = ReplyWaiter::Gone;
        let each = std::mem::take(&mut state.each);
        // Dropping replies may send requests, which takes other locks.
        drop(state);
        drop(each);
    }
}

impl ReplySender {
    /// Sends the reply. If the caller has gone, the jobs in the reply are released as it is
    /// dropped.
    pub(crate) fn send(mut self, outcome: Outcome) {
        self.sent = true;
        let _unwanted = self.shared.put(self.at, outcome);
    }

    /// Whether the caller has gone.
    pub(crate) fn is_abandoned(&self) -> bool {
        matches!(self.shared.state().asker, ReplyWaiter::Gone)
    }
}

impl Drop for ReplySender {
    fn drop(&mut self) {
        if !self.sent {
            let _unwanted = self.shared.put(self.at, Err(EngineError::Closed));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::task::{Context, Wake};

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    fn answer() -> Outcome {
        Ok(Answer::default())
    }

    #[test]
    fn who_asked_many_is_woken_once() {
        let replies = ReplySet::new(3);
        let each: Vec<ReplySender> = (0..3).map(|at| replies.reply(at)).collect();
        let mut all = Box::pin(replies.all());
        let woken = Arc::new(Woken::default());
        let waker = Arc::clone(&woken).into();
        let mut poll = || all.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(poll().is_pending());
        let mut each = each.into_iter();
        each.by_ref().take(2).for_each(|reply| reply.send(answer()));
        assert_eq!(woken.0.load(Relaxed), 0);
        drop(each);
        assert_eq!(woken.0.load(Relaxed), 1);
        let Poll::Ready(all) = poll() else {
            panic!("all have answered")
        };
        assert!(matches!(all[..], [Ok(_), Ok(_), Err(EngineError::Closed)]));
    }

    #[test]
    fn who_has_left_gets_nothing() {
        let replies = ReplySet::new(2);
        let [first, second] = [0, 1].map(|at| replies.reply(at));
        first.send(answer());
        assert!(!second.is_abandoned());
        drop(replies);
        assert!(second.is_abandoned());
        second.send(answer());
    }
}
