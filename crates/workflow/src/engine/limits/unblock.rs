//! Unblocks limits when they may have room again.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::engine::Engine;
use crate::time::Timestamp;

/// Interval of checks for a changed configuration of limits, while jobs wait under limits.
const CONFIG_CHECK_INTERVAL: Duration = Duration::from_millis(500);

impl Engine {
    /// Wakes workers when windows of limits end for which jobs wait, and when the limits change.
    /// `changed` reports whether they changed since its last call. Only one task at a time may run
    /// this loop. Without it, the next claim finds jobs whose limits have room. Never returns.
    pub async fn unblock_loop(
        &self,
        now: impl Fn() -> Timestamp,
        mut changed: impl FnMut() -> bool,
    ) {
        let mut looked = Instant::now();
        loop {
            let next = self.queues().next_opening();
            let look = (looked + CONFIG_CHECK_INTERVAL).saturating_duration_since(Instant::now());
            let wait = next.map_or(Duration::MAX, |next| next.since(now()).min(look));
            tokio::select! {
                () = sleep(wait), if next.is_some() => {
                    self.queues().open_due(now());
                    if looked.elapsed() >= CONFIG_CHECK_INTERVAL {
                        looked = Instant::now();
                        if changed() {
                            self.queues().open_all();
                        }
                    }
                }
                () = self.queues().closed() => {}
            }
        }
    }
}
