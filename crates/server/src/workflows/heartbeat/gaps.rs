//! Detector of gaps in which workers could not reach this server: after its start, a pause of its
//! process, or a jump of its clock.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tidegate_workflow::{Engine, Timestamp};
use tokio::time::Instant;

use crate::workflows::clock::StoreClock;

/// Minimum pause of the process that counts as a gap. Workers extend the shortest lease of 5 s
/// after a third of it, so a shorter pause costs no lease. Each heartbeat checks for a gap, at most
/// 2.5 s apart.
const MIN_GAP: Duration = Duration::from_secs(3);

/// Reports gaps to the engine, in which workers could not reach this server.
pub(crate) struct GapDetector {
    pub(crate) engine: Engine,
    pub(crate) clock: StoreClock,
    /// Time of the last check.
    checked: Mutex<Option<Instant>>,
}

impl GapDetector {
    pub(crate) fn new(engine: Engine, clock: StoreClock) -> Self {
        Self {
            engine,
            clock,
            checked: Mutex::new(None),
        }
    }

    /// Returns the current time. If a gap ends now, the engine is notified before it does any work
    /// at this time.
    pub(crate) fn check(&self) -> Timestamp {
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
