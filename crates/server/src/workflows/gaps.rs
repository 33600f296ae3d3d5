//! Notices that workers could not reach this server for a while: it has just begun, its process stood still, or its clock has jumped.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tidegate_workflow::{Engine, Timestamp};
use tokio::time::{Instant, sleep};

use super::clock::StoreClock;

/// How often it looks.
const APART: Duration = Duration::from_millis(500);
/// Workers try again within this time, so a process that stood still for less was there all the time.
const GAP: Duration = Duration::from_secs(2);

/// See the module.
pub(super) struct Gaps {
    engine: Engine,
    clock: StoreClock,
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

    /// Looks again and again, until it is dropped.
    pub(super) async fn run(&self) {
        loop {
            sleep(APART).await;
            self.look();
        }
    }
}
