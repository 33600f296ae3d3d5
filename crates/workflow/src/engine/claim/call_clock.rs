//! The time that a call was told.

use tokio::time::Instant;

use crate::time::Timestamp;

/// The time at which a call began. It may have waited for the store for long when it hears for how long a limit has no room.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) struct CallClock {
    started_at: Timestamp,
    began: Instant,
}

impl CallClock {
    pub(in crate::engine) fn at(now: Timestamp) -> Self {
        Self {
            started_at: now,
            began: Instant::now(),
        }
    }

    /// When the call began.
    pub(in crate::engine) fn started_at(self) -> Timestamp {
        self.started_at
    }

    /// What time it is by now.
    pub(in crate::engine) fn now(self) -> Timestamp {
        self.started_at + self.began.elapsed()
    }
}
