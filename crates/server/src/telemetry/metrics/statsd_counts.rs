//! Counts of lines for StatsD.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::shard::shared::read;

/// Counts of lines for StatsD.
#[derive(Debug, Default)]
pub(crate) struct StatsdCounts {
    sent: AtomicU64,
    lost: AtomicU64,
    too_long: AtomicU64,
}

impl StatsdCounts {
    /// Counts lines that were sent, or that may have been sent before a failure.
    pub(crate) fn count(&self, lines: u64, sent: &io::Result<()>) {
        let count = if sent.is_ok() { &self.sent } else { &self.lost };
        count.fetch_add(lines, Relaxed);
    }

    /// Counts a line that is longer than a datagram.
    pub(crate) fn too_long(&self) {
        self.too_long.fetch_add(1, Relaxed);
    }

    pub(super) fn counters(&self) -> [(&'static str, u64); 3] {
        [
            ("tidegate.statsd.sent_lines", read(&self.sent)),
            ("tidegate.statsd.lost_lines", read(&self.lost)),
            ("tidegate.statsd.too_long_lines", read(&self.too_long)),
        ]
    }
}
