//! Limits how often a line is logged, however often its cause comes.

use std::time::{Duration, Instant};

/// Counts the lines that are not logged.
#[derive(Debug, Default)]
pub(crate) struct LogThrottle {
    last_logged: Option<Instant>,
    suppressed: u64,
}

impl LogThrottle {
    /// Whether to log now, once in `interval`. Returns the number of lines that were suppressed
    /// since the last one.
    pub(crate) fn admit(&mut self, interval: Duration) -> Option<u64> {
        if self
            .last_logged
            .is_some_and(|last_logged| last_logged.elapsed() < interval)
        {
            self.suppressed += 1;
            return None;
        }
        self.last_logged = Some(Instant::now());
        Some(std::mem::take(&mut self.suppressed))
    }
}
