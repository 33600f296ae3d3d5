//! A thread that processes a queue of requests, and ends with its owner.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{self, Receiver, Sender};

use crate::codec::StoreError;

/// Owns a thread. Dropping it lets the thread finish the queued requests, and joins it.
pub(super) struct WorkerThread<J> {
    queue: Option<Sender<Message<J>>>,
    thread: Option<JoinHandle<()>>,
}

enum Message<J> {
    Request(J),
    Close,
}

/// The requests that wait for a worker thread.
pub(super) struct RequestQueue<J> {
    queue: Receiver<Message<J>>,
    draining: bool,
}

/// The result of waiting for a request.
pub(super) enum WaitResult<J> {
    Request(J),
    /// No request arrived within the time.
    TimedOut,
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

impl<J> RequestQueue<J> {
    /// Blocks until a request arrives or the time has passed.
    pub(super) fn next_within(&mut self, time: Duration) -> WaitResult<J> {
        let ended = |request: Option<J>| request.map_or(WaitResult::Ended, WaitResult::Request);
        if self.draining {
            return ended(self.try_next());
        }
        let until = Instant::now() + time;
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        loop {
            match self.queue.poll_recv(&mut Context::from_waker(&waker)) {
                Poll::Ready(Some(Message::Request(request))) => {
                    return WaitResult::Request(request);
                }
                Poll::Ready(Some(Message::Close)) => {
                    self.draining = true;
                    return ended(self.try_next());
                }
                Poll::Ready(None) => return WaitResult::Ended,
                Poll::Pending => match until.checked_duration_since(Instant::now()) {
                    Some(left) if !left.is_zero() => thread::park_timeout(left),
                    _ => return WaitResult::TimedOut,
                },
            }
        }
    }

    /// Blocks until a request arrives. `None` if the thread should end.
    pub(super) fn next(&mut self) -> Option<J> {
        if self.draining {
            return self.try_next();
        }
        match self.queue.blocking_recv()? {
            Message::Request(request) => Some(request),
            Message::Close => {
                self.draining = true;
                self.try_next()
            }
        }
    }

    /// Takes a request that is queued already. `None` if there is none.
    pub(super) fn try_next(&mut self) -> Option<J> {
        loop {
            match self.queue.try_recv().ok()? {
                Message::Request(request) => return Some(request),
                Message::Close => self.draining = true,
            }
        }
    }
}

impl<J: Send + 'static> WorkerThread<J> {
    /// Starts a thread that runs `run` until its owner is dropped and no request is queued. At most
    /// `bound` requests are queued.
    pub(super) fn spawn(
        name: &str,
        bound: usize,
        run: impl FnOnce(&mut RequestQueue<J>) + Send + 'static,
    ) -> io::Result<Self> {
        let (sender, receiver) = mpsc::channel(bound);
        let body = move || {
            // Dropped last, even after a panic of `run`: when the queue is closed, everything that
            // `run` owned is dropped.
            let mut requests = RequestQueue {
                queue: receiver,
                draining: false,
            };
            run(&mut requests);
        };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(body)?;
        Ok(Self {
            queue: Some(sender),
            thread: Some(thread),
        })
    }

    /// Queues a request.
    pub(super) async fn send(&self, request: J) -> Result<(), StoreError> {
        let queue = self
            .queue
            .as_ref()
            .expect("the queue goes when the worker is dropped");
        queue
            .send(Message::Request(request))
            .await
            .map_err(|_| ended())
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

impl<J> Drop for WorkerThread<J> {
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
    StoreError::unavailable("it is closed")
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc as threads;

    use super::*;

    #[tokio::test]
    async fn what_waits_is_done_before_a_worker_ends() {
        let (done, finished) = threads::channel();
        let worker = WorkerThread::spawn("worker", 10, move |requests: &mut RequestQueue<u32>| {
            while let Some(request) = requests.next() {
                done.send(request).unwrap();
            }
        });
        let worker = worker.unwrap();
        for request in 0..5 {
            worker.send(request).await.unwrap();
        }
        worker.close().await;
        assert_eq!(finished.try_iter().collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        assert_eq!(worker.send(5).await, Err(ended()));
    }

    #[tokio::test]
    async fn a_worker_times_out_and_receives_later_requests() {
        let (sender, receiver) = threads::channel();
        let worker = WorkerThread::spawn("worker", 10, move |requests: &mut RequestQueue<u32>| {
            loop {
                let time = Duration::from_millis(if sender.send(None).is_ok() { 1 } else { 0 });
                match requests.next_within(time) {
                    WaitResult::Request(request) => sender.send(Some(request)).unwrap(),
                    WaitResult::TimedOut => {}
                    WaitResult::Ended => break,
                }
            }
        });
        let worker = worker.unwrap();
        // The thread continues while no request arrives.
        assert_eq!(receiver.iter().take(3).collect::<Vec<_>>(), [None; 3]);
        worker.send(7).await.unwrap();
        assert_eq!(receiver.iter().flatten().next(), Some(7));
        worker.send(8).await.unwrap();
        worker.close().await;
        assert_eq!(receiver.iter().flatten().collect::<Vec<_>>(), [8]);
    }

    #[tokio::test]
    async fn callers_of_a_worker_that_panicked_fail() {
        let worker = WorkerThread::spawn("worker", 1, |requests: &mut RequestQueue<u32>| {
            let _ = requests.next();
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
