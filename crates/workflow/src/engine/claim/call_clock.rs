//! The time during a call, from the time at which it began.

use tokio::time::Instant;

use crate::model::time::Timestamp;

/// Clock of one call. A call may wait for the store for long, and what a limiter answers then
/// counts from the current time.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) struct CallClock {
    started_at: Timestamp,
    started: Instant,
}

impl CallClock {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self {
            started_at: now,
            started: Instant::now(),
        }
    }

    /// Time at which the call began.
    pub(in crate::engine) fn started_at(self) -> Timestamp {
        self.started_at
    }

    /// Current time.
    pub(crate) fn now(self) -> Timestamp {
        self.started_at + self.started.elapsed()
    }
}
