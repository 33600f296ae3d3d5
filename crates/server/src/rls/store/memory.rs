//! Counters in memory: removes those whose window has passed, and logs evictions.

use std::time::Duration;

use tidegate_ratelimit::MemoryStore;
use tokio::time::interval;
use tracing::warn;

use crate::base::clock;

/// Interval of removals.
const PURGE_INTERVAL: Duration = Duration::from_secs(1);

/// Removals between two warnings about a full store: one warning a minute.
const WARNING_TICKS: u32 = 60;

/// Removes counters whose window has passed, again and again.
pub(crate) async fn purge(memory: MemoryStore) {
    let mut ticks = interval(PURGE_INTERVAL);
    let mut dropped = DroppedCounters::default();
    loop {
        ticks.tick().await;
        if let Some(dropped) = dropped.since_logged(memory.evictions()) {
            warn!(
                dropped,
                "memory for counters is full, so some counters were dropped and begin again from zero; raise \
                 TIDEGATE_COUNTER_MEMORY, or see 'When memory for counters is full' in docs/guarantees.md if clients made up the keys"
            );
        }
        memory.purge(clock::now());
    }
}

/// Number of counters that a full store dropped.
#[derive(Debug, Default)]
struct DroppedCounters {
    logged: u64,
    /// Ticks until the next warning is allowed.
    quiet_ticks: u32,
}

impl DroppedCounters {
    /// Called at each tick. Returns the number of counters that were dropped since the last
    /// warning, if a warning is due.
    fn since_logged(&mut self, evictions: u64) -> Option<u64> {
        self.quiet_ticks = self.quiet_ticks.saturating_sub(1);
        let dropped = evictions - self.logged;
        if dropped == 0 || self.quiet_ticks > 0 {
            return None;
        }
        *self = Self {
            logged: evictions,
            quiet_ticks: WARNING_TICKS,
        };
        Some(dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_store_is_told_of_once_a_minute() {
        let mut dropped = DroppedCounters::default();
        assert_eq!(dropped.since_logged(0), None);
        assert_eq!(dropped.since_logged(7), Some(7));
        let logged: Vec<Option<u64>> = (1..=120)
            .map(|tick| dropped.since_logged(7 + tick))
            .collect();
        let expected = |tick| if tick % 60 == 0 { Some(60) } else { None };
        assert_eq!(logged, (1..=120).map(expected).collect::<Vec<_>>());
        let quiet: Vec<Option<u64>> = (1..=120).map(|_| dropped.since_logged(127)).collect();
        assert_eq!(quiet, [None; 120]);
    }
}
