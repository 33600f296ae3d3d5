//! The threads that the engine works on.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

use crate::engine::limits::unit_counter::Units;
use crate::store::Store;

/// A thread of the engine. The desks of its partitions are served there, over its own connections to the store.
#[derive(Debug, Clone)]
pub struct Thread {
    pub(crate) store: Store,
    /// None: whichever thread asks.
    runtime: Option<Handle>,
    /// Where the units of rate limits come from. None: there are no rate limits.
    pub(crate) units: Option<Arc<dyn Units>>,
}

impl Thread {
    /// Desks are served on this runtime, which should have one thread, with this handle on the store.
    #[must_use]
    pub fn new(store: Store, runtime: Handle) -> Self {
        Self {
            store,
            runtime: Some(runtime),
            units: None,
        }
    }

    /// Desks are served on the runtime of whoever asks first.
    pub(crate) fn any(store: Store) -> Self {
        Self {
            store,
            runtime: None,
            units: None,
        }
    }

    /// The units of rate limits come from there.
    #[must_use]
    pub fn with_units(self, units: Arc<dyn Units>) -> Self {
        Self {
            units: Some(units),
            ..self
        }
    }

    pub(super) fn spawn(
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
