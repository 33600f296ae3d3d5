//! A thread that processes a queue of requests, and ends with its owner.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{self, Receiver, Sender};

use crate::store::error::StoreError;

/// Owns a thread. Dropping it lets the thread finish the queued requests, and joins it.
pub(super) struct Worker<J> {
    queue: Option<Sender<Message<J>>>,
    thread: Option<JoinHandle<()>>,
}

enum Message<J> {
    Job(J),
    Close,
}

/// The requests that wait for a worker thread.
pub(super) struct Jobs<J> {
    queue: Receiver<Message<J>>,
    closing: bool,
}

/// The result of waiting for a request.
pub(super) enum Waited<J> {
    Job(J),
    /// No request arrived within the time.
    Nothing,
    /// The thread should end.
    Ended,
}

/// Wakes a thread that waits.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl<J> Jobs<J> {
    /// Blocks until a request arrives or the time has passed.
    pub(super) fn next_within(&mut self, time: Duration) -> Waited<J> {
        let ended = |job: Option<J>| job.map_or(Waited::Ended, Waited::Job);
        if self.closing {
            return ended(self.waiting());
        }
        let until = Instant::now() + time;
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        loop {
            match self.queue.poll_recv(&mut Context::from_waker(&waker)) {
                Poll::Ready(Some(Message::Job(job))) => return Waited::Job(job),
                Poll::Ready(Some(Message::Close)) => {
                    self.closing = true;
                    return ended(self.waiting());
                }
                Poll::Ready(None) => return Waited::Ended,
                Poll::Pending => match until.checked_duration_since(Instant::now()) {
                    Some(left) if !left.is_zero() => thread::park_timeout(left),
                    _ => return Waited::Nothing,
                },
            }
        }
    }

    /// Blocks until a request arrives. `None` if the thread should end.
    pub(super) fn next(&mut self) -> Option<J> {
        if self.closing {
            return self.waiting();
        }
        match self.queue.blocking_recv()? {
            Message::Job(job) => Some(job),
            Message::Close => {
                self.closing = true;
                self.waiting()
            }
        }
    }

    /// Takes a request that is queued already. `None` if there is none.
    pub(super) fn waiting(&mut self) -> Option<J> {
        loop {
            match self.queue.try_recv().ok()? {
                Message::Job(job) => return Some(job),
                Message::Close => self.closing = true,
            }
        }
    }
}

impl<J: Send + 'static> Worker<J> {
    /// Starts a thread that runs `run` until its owner is dropped and no request is queued. At most
    /// `bound` requests are queued.
    pub(super) fn spawn(
        name: &str,
        bound: usize,
        run: impl FnOnce(&mut Jobs<J>) + Send + 'static,
    ) -> io::Result<Self> {
        let (sender, receiver) = mpsc::channel(bound);
        let body = move || {
            // Dropped last, even after a panic of `run`: when the queue is closed, everything that
            // `run` owned is dropped.
            let mut jobs = Jobs {
                queue: receiver,
                closing: false,
            };
            run(&mut jobs);
        };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(body)?;
        Ok(Self {
            queue: Some(sender),
            thread: Some(thread),
        })
    }

    /// Queues a request.
    pub(super) async fn send(&self, job: J) -> Result<(), StoreError> {
        let queue = self
            .queue
            .as_ref()
            .expect("the queue goes when the worker is dropped");
        queue.send(Message::Job(job)).await.map_err(|_| ended())
    }

    /// Lets the thread finish the queued requests and end, and waits for it.
    pub(super) async fn close(&self) {
        let queue = self
            .queue
            .as_ref()
            .expect("the queue goes when the worker is dropped");
        // It fails when the thread has ended.
        let _ = queue.send(Message::Close).await;
        queue.closed().await;
    }
}

impl<J> Drop for Worker<J> {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("a thread of the store had panicked");
        }
    }
}

/// The error for callers after the thread has ended.
pub(super) fn ended() -> StoreError {
    StoreError::Unavailable {
        reason: "it is closed".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc as threads;

    use super::*;

    #[tokio::test]
    async fn what_waits_is_done_before_a_worker_ends() {
        let (done, finished) = threads::channel();
        let worker = Worker::spawn("worker", 10, move |jobs: &mut Jobs<u32>| {
            while let Some(job) = jobs.next() {
                done.send(job).unwrap();
            }
        });
        let worker = worker.unwrap();
        for job in 0..5 {
            worker.send(job).await.unwrap();
        }
        worker.close().await;
        assert_eq!(finished.try_iter().collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        assert_eq!(worker.send(5).await, Err(ended()));
    }

    #[tokio::test]
    async fn a_worker_hears_that_nothing_comes_and_of_what_comes_meanwhile() {
        let (heard, hears) = threads::channel();
        let worker = Worker::spawn("worker", 10, move |jobs: &mut Jobs<u32>| {
            loop {
                let time = Duration::from_millis(if heard.send(None).is_ok() { 1 } else { 0 });
                match jobs.next_within(time) {
                    Waited::Job(job) => heard.send(Some(job)).unwrap(),
                    Waited::Nothing => {}
                    Waited::Ended => break,
                }
            }
        });
        let worker = worker.unwrap();
        // The thread continues while no request arrives.
        assert_eq!(hears.iter().take(3).collect::<Vec<_>>(), [None; 3]);
        worker.send(7).await.unwrap();
        assert_eq!(hears.iter().flatten().next(), Some(7));
        worker.send(8).await.unwrap();
        worker.close().await;
        assert_eq!(hears.iter().flatten().collect::<Vec<_>>(), [8]);
    }

    #[tokio::test]
    async fn a_worker_that_panics_hangs_nobody() {
        let worker = Worker::spawn("worker", 1, |jobs: &mut Jobs<u32>| {
            let _ = jobs.next();
            panic!("on purpose");
        });
        let worker = worker.unwrap();
        worker.send(1).await.unwrap();
        // More requests than the queue holds: callers that wait for capacity fail, too.
        while worker.send(2).await.is_ok() {}
        assert_eq!(worker.send(3).await, Err(ended()));
        worker.close().await;
    }
}
