//! Joins the replies to requests that were sent together, and wakes the caller once, after the last
//! reply. Actors on other threads would otherwise wake it for each reply.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use crate::engine::actor::answer::Answer;
use crate::engine::context::error::EngineError;

type Reply = Result<Answer, EngineError>;

/// The replies to requests that were sent together.
#[derive(Debug)]
pub(crate) struct ReplySet {
    shared: Arc<Mutex<ReplyState>>,
}

/// Sends the reply to one request. If dropped without a reply, the caller gets the error that the
/// engine is closed.
#[derive(Debug)]
pub(crate) struct ReplySender {
    shared: Arc<Mutex<ReplyState>>,
    index: usize,
    sent: bool,
}

#[derive(Debug)]
struct ReplyState {
    replies: Vec<Option<Reply>>,
    /// Number of replies that are still to come.
    missing: usize,
    waiter: ReplyWaiter,
}

#[derive(Debug)]
enum ReplyWaiter {
    Waiting(Option<Waker>),
    Gone,
}

fn lock(shared: &Mutex<ReplyState>) -> MutexGuard<'_, ReplyState> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ReplySet {
    /// Creates a set for the replies to `number` requests.
    pub(crate) fn new(number: usize) -> Self {
        let replies = (0..number).map(|_| None).collect();
        let state = ReplyState {
            replies,
            missing: number,
            waiter: ReplyWaiter::Waiting(None),
        };
        Self {
            shared: Arc::new(Mutex::new(state)),
        }
    }

    /// Returns the sender of the reply to request `index`. Must be called once for each request.
    pub(crate) fn sender(&self, index: usize) -> ReplySender {
        ReplySender {
            shared: Arc::clone(&self.shared),
            index,
            sent: false,
        }
    }

    /// Waits for all replies, which are in the order of the requests.
    ///
    /// # Cancellation
    /// When the future is dropped, replies are dropped as they come.
    pub(crate) async fn wait(self) -> Vec<Reply> {
        poll_fn(|context| {
            let mut state = lock(&self.shared);
            if state.missing > 0 {
                state.waiter = ReplyWaiter::Waiting(Some(context.waker().clone()));
                return Poll::Pending;
            }
            let replies = std::mem::take(&mut state.replies);
            Poll::Ready(
                replies
                    .into_iter()
                    .map(|outcome| outcome.expect("none is missing"))
                    .collect(),
            )
        })
        .await
    }
}

impl Drop for ReplySet {
    fn drop(&mut self) {
        let mut state = lock(&self.shared);
        state.waiter = ReplyWaiter::Gone;
        let replies = std::mem::take(&mut state.replies);
        // Dropping replies may send requests, which takes other locks.
        drop(state);
        drop(replies);
    }
}

impl ReplySender {
    /// Sends the reply. If the caller has gone, the jobs in the reply are released as it is
    /// dropped.
    pub(crate) fn send(mut self, reply: Reply) {
        self.store(reply);
    }

    /// Stores the reply, or drops it if the caller has gone.
    fn store(&mut self, reply: Reply) {
        self.sent = true;
        let mut locked = lock(&self.shared);
        let state = &mut *locked;
        let ReplyWaiter::Waiting(waker) = &mut state.waiter else {
            // Dropping the reply may send requests, which takes other locks.
            drop(locked);
            return;
        };
        state.replies[self.index] = Some(reply);
        state.missing -= 1;
        let waker = waker.take_if(|_| state.missing == 0);
        drop(locked);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Whether the caller has gone.
    pub(crate) fn is_abandoned(&self) -> bool {
        matches!(lock(&self.shared).waiter, ReplyWaiter::Gone)
    }
}

impl Drop for ReplySender {
    fn drop(&mut self) {
        if !self.sent {
            self.store(Err(EngineError::Closed));
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

    fn answer() -> Reply {
        Ok(Answer::default())
    }

    #[test]
    fn a_caller_of_many_is_woken_once() {
        let replies = ReplySet::new(3);
        let senders: Vec<ReplySender> = (0..3).map(|at| replies.sender(at)).collect();
        let mut all = Box::pin(replies.wait());
        let woken = Arc::new(Woken::default());
        let waker = Arc::clone(&woken).into();
        let mut poll = || all.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(poll().is_pending());
        let mut senders = senders.into_iter();
        senders
            .by_ref()
            .take(2)
            .for_each(|reply| reply.send(answer()));
        assert_eq!(woken.0.load(Relaxed), 0);
        drop(senders);
        assert_eq!(woken.0.load(Relaxed), 1);
        let Poll::Ready(all) = poll() else {
            panic!("all have answered")
        };
        assert!(matches!(all[..], [Ok(_), Ok(_), Err(EngineError::Closed)]));
    }

    #[test]
    fn who_has_left_gets_nothing() {
        let replies = ReplySet::new(2);
        let [first, second] = [0, 1].map(|at| replies.sender(at));
        first.send(answer());
        assert!(!second.is_abandoned());
        drop(replies);
        assert!(second.is_abandoned());
        second.send(answer());
    }
}
