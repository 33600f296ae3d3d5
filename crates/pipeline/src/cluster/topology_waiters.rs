//! Wakes tasks that wait for a newer snapshot, a few at a time.

use std::pin::pin;

use tokio::sync::Notify;

/// Number of tasks that are woken at once. Thousands may wait, and other tasks run between the
/// wakes.
const AT_ONCE: usize = 16;

/// The tasks that wait for a newer snapshot. Each woken task wakes the next, in the order of their
/// arrival.
#[derive(Debug, Default)]
pub(crate) struct TopologyWaiters(Notify);

impl TopologyWaiters {
    /// Begins to wake the waiting tasks.
    pub(crate) fn announce(&self) {
        (0..AT_ONCE).for_each(|_| self.0.notify_one());
    }

    /// Waits until `is_newer` returns true.
    ///
    /// # Cancellation
    /// The next task is woken instead.
    pub(crate) async fn wait(&self, came: impl Fn() -> bool) {
        loop {
            let mut notified = pin!(self.0.notified());
            // The notification is enabled before the check: otherwise a snapshot between the two
            // would be missed.
            notified.as_mut().enable();
            if came() {
                break;
            }
            notified.await;
            // A task that arrived after the snapshot ends the chain: only newer tasks wait after
            // it.
            if came() {
                break;
            }
        }
        self.0.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
    use std::task::{Context, Poll, Wake, Waker};

    use super::*;

    /// Counts wakes.
    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    #[test]
    fn a_snapshot_wakes_a_few_and_each_wakes_the_next() {
        const WAITING: usize = 1_000;
        let renewal = TopologyWaiters::default();
        let came = AtomicBool::new(false);
        let wakes: Vec<Arc<Wakes>> = (0..WAITING).map(|_| Arc::default()).collect();
        let woken = || {
            wakes
                .iter()
                .filter(|wakes| wakes.0.load(SeqCst) > 0)
                .count()
        };
        let mut waiting: Vec<_> = (0..WAITING)
            .map(|_| Box::pin(renewal.wait(|| came.load(SeqCst))))
            .collect();
        let mut poll = |at: usize| {
            let waker = Waker::from(Arc::clone(&wakes[at]));
            waiting[at].as_mut().poll(&mut Context::from_waker(&waker))
        };
        assert!((0..WAITING).all(|at| poll(at).is_pending()));
        came.store(true, SeqCst);
        renewal.announce();
        assert_eq!(woken(), AT_ONCE);
        for at in 0..WAITING {
            assert_eq!(poll(at), Poll::Ready(()));
            assert_eq!(
                woken(),
                (AT_ONCE + at + 1).min(WAITING),
                "in the order in which they came"
            );
        }
    }
}
