//! Notices that workers could not reach this server for a while: it has just begun, its process stood still, or its clock has jumped.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tidegate_workflow::{Engine, Timestamp};
use tokio::time::Instant;

use super::clock::StoreClock;

/// A process that stood still for less was there all the time: workers extend a lease of 5 s, the shortest, when a third of it has passed. It looks with each heartbeat,
/// 2.5 s apart at most.
const GAP: Duration = Duration::from_secs(3);

/// See the module.
pub(super) struct Gaps {
    pub(super) engine: Engine,
    pub(super) clock: StoreClock,
    /// When it looked last.
    looked: Mutex<Option<Instant>>,
}

impl Gaps {
    pub(super) fn new(engine: Engine, clock: StoreClock) -> Self {
        Self { engine, clock, looked: Mutex::new(None) }
    }

    /// The time now. Before anything is done at that time, the engine is told of a gap that ends there.
    pub(super) fn look(&self) -> Timestamp {
        let (now, moment) = (self.clock.now(), Instant::now());
        let last = self.looked.lock().unwrap_or_else(PoisonError::into_inner).replace(moment);
        let stood = last.is_none_or(|last| moment.saturating_duration_since(last) >= GAP);
        if self.clock.take_jump() || stood {
            self.engine.begin_serving(now);
        }
        now
    }
}
