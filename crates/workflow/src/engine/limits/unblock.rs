//! Unblocks limits when they may have room again.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::engine::Engine;
use crate::model::Timestamp;

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
        let mut last_check = Instant::now();
        loop {
            let next = self.queues().next_unblock();
            let next_check =
                (last_check + CONFIG_CHECK_INTERVAL).saturating_duration_since(Instant::now());
            let wait = next.map_or(Duration::MAX, |next| next.since(now()).min(next_check));
            tokio::select! {
                () = sleep(wait), if next.is_some() => {
                    self.queues().unblock_due(now());
                    if last_check.elapsed() >= CONFIG_CHECK_INTERVAL {
                        last_check = Instant::now();
                        if changed() {
                            self.queues().unblock_all();
                        }
                    }
                }
                () = self.queues().wait_for_block() => {}
            }
        }
    }
}
