//! The task that serves a desk, which may be dropped with its runtime while others still ask.

use crate::engine::Engine;
use crate::id::Partition;

/// A desk's one task, from its start to its end.
#[derive(Debug)]
pub(crate) struct Turn {
    engine: Engine,
    partition: Partition,
    served: bool,
}

impl Turn {
    pub(crate) fn new(engine: &Engine, partition: Partition) -> Self {
        Self { engine: engine.clone(), partition, served: false }
    }

    /// Serves all that waits.
    pub(crate) async fn serve(mut self) {
        self.engine.core.desks[usize::from(self.partition.0)].serve(&self.engine).await;
        self.served = true;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !self.served {
            self.engine.core.desks[usize::from(self.partition.0)].abandon();
        }
    }
}
