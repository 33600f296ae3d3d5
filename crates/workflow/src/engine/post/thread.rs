//! The threads that the engine works on.

use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

use crate::store::Store;

/// A thread of the engine. The desks of its partitions are served there, over its own connections to the store.
#[derive(Debug, Clone)]
pub struct Thread {
    pub(crate) store: Store,
    /// None: whichever thread asks.
    runtime: Option<Handle>,
}

impl Thread {
    /// Desks are served on this runtime, which should have one thread, with this handle on the store.
    #[must_use]
    pub fn new(store: Store, runtime: Handle) -> Self {
        Self { store, runtime: Some(runtime) }
    }

    /// Desks are served on the runtime of whoever asks first.
    pub(crate) fn any(store: Store) -> Self {
        Self { store, runtime: None }
    }

    pub(super) fn spawn(&self, tasks: &TaskTracker, task: impl Future<Output = ()> + Send + 'static) {
        match &self.runtime {
            Some(runtime) => tasks.spawn_on(task, runtime),
            None => tasks.spawn(task),
        };
    }
}
