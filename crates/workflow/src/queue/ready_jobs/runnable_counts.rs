//! The numbers of limited jobs that are not blocked, by handler.

use std::sync::Arc;

use hashbrown::HashMap;

/// Number of limited jobs of each handler that are not blocked.
#[derive(Debug, Default)]
pub(super) struct RunnableCounts(HashMap<Arc<str>, usize>);

impl RunnableCounts {
    pub(super) fn count(&self, handler: &str) -> usize {
        self.0.get(handler).copied().unwrap_or(0)
    }

    /// Counts the jobs of a lane that had `before` jobs, and has `now`.
    pub(super) fn change(&mut self, handler: &Arc<str>, before: usize, now: usize) {
        if before == now {
            return;
        }
        let Some(number) = self.0.get_mut(handler) else {
            self.0
                .insert(Arc::clone(handler), now.saturating_sub(before));
            return;
        };
        *number = (*number + now).saturating_sub(before);
        // Unused handler names are removed, so that they take no memory.
        if *number == 0 {
            self.0.remove(handler);
        }
    }
}
