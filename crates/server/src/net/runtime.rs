//! The runtime of one thread.

use std::future::Future;
use std::io;

use tokio::runtime::{Builder, Handle, Runtime};

/// A single-threaded runtime. Its drop waits for work that blocks.
pub(crate) fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

/// A single-threaded runtime of a part of the server. Its end waits for nobody: a thread that the system keeps waiting, for example in the look-up of a
/// name, does not delay it.
#[derive(Debug)]
pub(crate) struct ThreadRuntime(Option<Runtime>);

impl ThreadRuntime {
    /// A runtime without tasks.
    ///
    /// # Errors
    /// The system refuses what it needs.
    pub(crate) fn new() -> io::Result<Self> {
        runtime().map(|runtime| Self(Some(runtime)))
    }

    /// Runs `work` and all tasks until `work` has ended.
    pub(crate) fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.inner().block_on(work)
    }

    /// The way to spawn tasks on it from other threads.
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
