//! The runtime of one thread.

use std::future::Future;
use std::io;

use tokio::runtime::{Builder, Handle, Runtime};

/// Creates a single-threaded runtime. Its drop waits for blocking work.
pub(crate) fn current_thread_runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

/// A single-threaded runtime of a part of the server. Its drop does not wait for threads that the
/// system blocks, for example in a DNS look-up.
#[derive(Debug)]
pub(crate) struct ThreadRuntime(Option<Runtime>);

impl ThreadRuntime {
    /// Creates a runtime without tasks.
    ///
    /// # Errors
    /// The system refuses a resource that the runtime needs.
    pub(crate) fn new() -> io::Result<Self> {
        current_thread_runtime().map(|runtime| Self(Some(runtime)))
    }

    /// Runs `work`, and all tasks until `work` has ended.
    pub(crate) fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.inner().block_on(work)
    }

    /// Returns the handle with which other threads spawn tasks on this runtime.
    pub(crate) fn handle(&self) -> Handle {
        self.inner().handle().clone()
    }

    fn inner(&self) -> &Runtime {
        self.0.as_ref().expect("it is there until the drop")
    }
}

impl Drop for ThreadRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
