//! Commands that must be sent although their callers have left.

use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

use crate::batch::Batch;

/// Maximum number of batches that are kept: as many commands as are in flight to a node by default.
/// Each batch is the expiry of one counter.
const MAX_BATCHES: usize = 4096;

/// Commands that must be sent although their callers have left: expiries behind increments that may
/// have run, whose connection broke. A counter without an expiry would stay for ever.
#[derive(Debug, Default)]
pub(crate) struct LeftBehind {
    batches: Mutex<Vec<Batch>>,
    added: Notify,
}

impl LeftBehind {
    /// Adds commands. Drops them if [`MAX_BATCHES`] are kept already.
    pub(crate) fn add(&self, batch: Batch) {
        let mut batches = self.batches.lock().unwrap_or_else(PoisonError::into_inner);
        if batches.len() < MAX_BATCHES {
            batches.push(batch);
            self.added.notify_one();
        }
    }

    /// Waits until there are commands, and returns all of them.
    ///
    /// # Cancellation
    /// Dropping the future loses nothing.
    pub(crate) async fn take(&self) -> Vec<Batch> {
        loop {
            let batches =
                std::mem::take(&mut *self.batches.lock().unwrap_or_else(PoisonError::into_inner));
            if !batches.is_empty() {
                return batches;
            }
            self.added.notified().await;
        }
    }
}
