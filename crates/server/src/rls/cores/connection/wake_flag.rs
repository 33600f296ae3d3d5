//! Polls a future only when it was woken itself: a connection's deadlines add no cost to its calls.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use crate::base::sync::lock;

/// Whether a future was woken, and the task to wake then.
#[derive(Debug)]
struct WakeFlag {
    is_set: AtomicBool,
    task: Mutex<Waker>,
}

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.is_set.store(true, Release);
        lock(&self.task).wake_by_ref();
    }
}

/// A future with its own wake flag. It must stay with the task that polls it first.
pub(super) struct SelectivePoll<F> {
    future: Pin<Box<F>>,
    wake_flag: Option<(Arc<WakeFlag>, Waker)>,
}

impl<F: Future> SelectivePoll<F> {
    pub(crate) fn new(future: F) -> Self {
        Self {
            future: Box::pin(future),
            wake_flag: None,
        }
    }
}

impl<F: Future> Future for SelectivePoll<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        let (wake_flag, waker) = this.wake_flag.get_or_insert_with(|| {
            let wake_flag = Arc::new(WakeFlag {
                is_set: AtomicBool::new(true),
                task: Mutex::new(context.waker().clone()),
            });
            (wake_flag.clone(), Waker::from(wake_flag))
        });
        if !wake_flag.is_set.load(Acquire) {
            return Poll::Pending;
        }
        wake_flag.is_set.store(false, Release);
        this.future.as_mut().poll(&mut Context::from_waker(waker))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, poll_fn};
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    use tokio::sync::Notify;

    #[tokio::test]
    async fn only_what_was_woken_is_polled() {
        let polls = AtomicU32::new(0);
        let notify = Notify::new();
        let mut wait = Box::pin(notify.notified());
        let mut aside = SelectivePoll::new(poll_fn(|context| {
            polls.fetch_add(1, Relaxed);
            wait.as_mut().poll(context)
        }));
        let mut rounds = 0;
        let busy = async {
            while rounds < 5 {
                tokio::task::yield_now().await;
                rounds += 1;
            }
            assert_eq!(polls.load(Relaxed), 1, "the task ran five times");
            notify.notify_one();
            pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = &mut aside => {}
            () = busy => {}
        }
        assert_eq!(polls.load(Relaxed), 2);
    }
}
