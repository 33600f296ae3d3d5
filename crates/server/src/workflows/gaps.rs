//! Notices that workers could not reach this server for a while: it has just begun, its process stood still, or its clock has jumped.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tidegate_workflow::{Engine, Timestamp};
use tokio::time::Instant;

use super::clock::StoreClock;

/// A process that stood still for less was there all the time: workers extend a lease of 5 s, the shortest, when a third of it has passed. Each heartbeat
/// checks for a gap, 2.5 s apart at most.
const MIN_GAP: Duration = Duration::from_secs(3);

/// Tells the engine of times in which workers could not reach this server.
pub(super) struct GapDetector {
    pub(super) engine: Engine,
    pub(super) clock: StoreClock,
    /// The time of the last check.
    checked: Mutex<Option<Instant>>,
}

impl GapDetector {
    pub(super) fn new(engine: Engine, clock: StoreClock) -> Self {
        Self {
            engine,
            clock,
            checked: Mutex::new(None),
        }
    }

    /// Returns the time now. If a gap ends then, the engine hears of it before anything is done at that time.
    pub(super) fn check(&self) -> Timestamp {
        let now = self.clock.now();
        let moment = Instant::now();
        let last = self
            .checked
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .replace(moment);
        let stood = last.is_none_or(|last| moment.saturating_duration_since(last) >= MIN_GAP);
        if self.clock.take_jump() || stood {
            self.engine.begin_serving(now);
        }
        now
    }
}
