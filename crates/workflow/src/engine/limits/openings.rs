//! Opens limits at the moment at which they may have room again, so that workers that wait need not ask.

use std::time::Duration;

use tokio::time::sleep;

use crate::engine::Engine;
use crate::time::Timestamp;

impl Engine {
    /// There are other limits than before: jobs that wait under any of them may be tried again.
    pub fn reconsider_limits(&self) {
        self.queues().open_all();
    }

    /// Wakes workers when the windows of limits turn for which jobs wait. Only one task at a time may do this. Until one does, jobs under limits
    /// are found by whoever claims next. Never returns.
    pub async fn open_limits(&self, now: impl Fn() -> Timestamp) {
        loop {
            let next = self.queues().next_opening();
            let wait = next.map_or(Duration::MAX, |next| next.since(now()));
            tokio::select! {
                () = sleep(wait), if next.is_some() => self.queues().open_due(now()),
                () = self.queues().closed() => {}
            }
        }
    }
}
