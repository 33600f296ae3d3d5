//! The threads that the engine works on.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

use crate::engine::limits::unit_counter::UnitCounter;
use crate::store::Store;

/// A thread of the engine. The actors of its partitions run there, over its own connections to the
/// store.
#[derive(Debug, Clone)]
pub struct EngineThread {
    pub(crate) store: Store,
    /// Runtime of the thread. `None` if an actor runs on the runtime of the caller that starts it.
    runtime: Option<Handle>,
    /// Source of the units of rate limits. `None` if there are no rate limits.
    pub(crate) units: Option<Arc<dyn UnitCounter>>,
}

impl EngineThread {
    /// Creates a thread whose actors run on this runtime, over this handle of the store. The
    /// runtime should have one thread.
    #[must_use]
    pub fn new(store: Store, runtime: Handle) -> Self {
        Self {
            store,
            runtime: Some(runtime),
            units: None,
        }
    }

    /// Creates a thread whose actors run on the runtimes of their callers.
    pub(crate) fn on_caller_runtime(store: Store) -> Self {
        Self {
            store,
            runtime: None,
            units: None,
        }
    }

    /// Sets the source of the units of rate limits.
    #[must_use]
    pub fn with_units(self, units: Arc<dyn UnitCounter>) -> Self {
        Self {
            units: Some(units),
            ..self
        }
    }

    pub(crate) fn spawn(
        &self,
        tasks: &TaskTracker,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        match &self.runtime {
            Some(runtime) => tasks.spawn_on(task, runtime),
            None => tasks.spawn(task),
        };
    }
}
