//! The threads of workflows: the first runs everything that there is once, and all of them run desks and connections of the API.

use std::io;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::error;

use super::PART;
use crate::net::runtime::ThreadRuntime;
use crate::supervise::failpoint;

/// All threads of workflows. When this is dropped, those beside the current one end, and with them their tasks.
#[derive(Debug)]
pub(super) struct Threads {
    /// Of each thread, the current one's first.
    runtimes: Vec<Handle>,
    others: Vec<JoinHandle<()>>,
    stop: CancellationToken,
    /// The thread that ended, by its place among the others.
    ended: mpsc::Receiver<usize>,
}

/// Tells that a thread has ended, also by a panic.
struct ThreadExit(mpsc::Sender<usize>, usize);

impl Drop for ThreadExit {
    fn drop(&mut self) {
        // There is room for all. Nobody listens any more when it was asked to end.
        let _ = self.0.try_send(self.1);
    }
}

impl Threads {
    /// So many threads, with the current one.
    ///
    /// # Errors
    /// The system refuses one.
    pub(super) fn start(count: usize) -> io::Result<Self> {
        let (tell, ended) = mpsc::channel(count.max(1));
        let stop = CancellationToken::new();
        let mut threads = Self {
            runtimes: vec![Handle::current()],
            others: Vec::new(),
            stop,
            ended,
        };
        for at in 1..count {
            let part: Arc<str> = format!("{PART}-{at}").into();
            let runtime = ThreadRuntime::new()?;
            let told = ThreadExit(tell.clone(), at - 1);
            let handle = runtime.handle();
            let stop = threads.stop.clone();
            let main = move || {
                let _told = told;
                runtime.block_on(failpoint::with(part, stop.cancelled_owned()));
            };
            threads
                .others
                .push(Builder::new().name(format!("{PART}-{at}")).spawn(main)?);
            threads.runtimes.push(handle);
        }
        Ok(threads)
    }

    /// Their runtimes, the current thread's first.
    pub(super) fn runtimes(&self) -> &[Handle] {
        &self.runtimes
    }

    /// Waits until one of the others has ended, which nobody asked for, and panics with it: a part of the server is repaired as a whole.
    pub(super) async fn broken(&mut self) {
        let Some(at) = self.ended.recv().await else {
            return std::future::pending().await;
        };
        if let Err(panic) = self.others.swap_remove(at).join() {
            resume_unwind(panic);
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.stop.cancel();
        for other in self.others.drain(..) {
            if other.join().is_err() {
                error!("a thread of workflows panicked");
            }
        }
    }
}
