//! Opens limits when there may be room again.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::engine::Engine;
use crate::time::Timestamp;

/// How often it is looked whether there are other limits, while jobs wait under some.
const CONFIG_CHECK_INTERVAL: Duration = Duration::from_millis(500);

impl Engine {
    /// Wakes workers when the windows of limits turn for which jobs wait, and when there are other limits: `changed` says whether there are since
    /// it was last called. Only one task at a time may do this. Until one does, jobs under limits are found by whoever claims next. Never returns.
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
