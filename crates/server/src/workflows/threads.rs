//! Threads of workflows. The first runs the background tasks, and all of them run partition actors
//! and connections of the API.

use std::io;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::error;

use super::THREAD_NAME;
use crate::supervise::failpoint;
use crate::supervise::runtime::ThreadRuntime;

/// All threads of workflows. The drop ends the threads except the current one, and their tasks.
#[derive(Debug)]
pub(super) struct Threads {
    /// Runtimes of the threads, that of the current thread first.
    runtimes: Vec<Handle>,
    others: Vec<JoinHandle<()>>,
    stop: CancellationToken,
    /// Index of a thread that ended, among the others.
    ended: mpsc::Receiver<usize>,
}

/// Guard of a thread. Its drop reports that the thread has ended, also by a panic.
struct ThreadExit(mpsc::Sender<usize>, usize);

impl Drop for ThreadExit {
    fn drop(&mut self) {
        // The channel has a slot for each thread. After a regular stop, the receiver is gone.
        let _ = self.0.try_send(self.1);
    }
}

impl Threads {
    /// Starts `count` threads, including the current one.
    ///
    /// # Errors
    /// The system refuses to start a thread.
    pub(super) fn start(count: usize) -> io::Result<Self> {
        let (exits, ended) = mpsc::channel(count.max(1));
        let stop = CancellationToken::new();
        let mut threads = Self {
            runtimes: vec![Handle::current()],
            others: Vec::new(),
            stop,
            ended,
        };
        for at in 1..count {
            let part: Arc<str> = format!("{THREAD_NAME}-{at}").into();
            let runtime = ThreadRuntime::new()?;
            let exit_guard = ThreadExit(exits.clone(), at - 1);
            let handle = runtime.handle();
            let stop = threads.stop.clone();
            let main = move || {
                let _exit_guard = exit_guard;
                runtime.block_on(failpoint::with(part, stop.cancelled_owned()));
            };
            threads.others.push(
                Builder::new()
                    .name(format!("{THREAD_NAME}-{at}"))
                    .spawn(main)?,
            );
            threads.runtimes.push(handle);
        }
        Ok(threads)
    }

    /// Runtimes of the threads, that of the current thread first.
    pub(super) fn runtimes(&self) -> &[Handle] {
        &self.runtimes
    }

    /// Waits until another thread ends unexpectedly, and panics with its panic: a part of the
    /// server restarts as a whole.
    pub(super) async fn wait_for_failure(&mut self) {
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
