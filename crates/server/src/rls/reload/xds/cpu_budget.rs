//! Bounds the processor time that a management server can take.

use std::time::{Duration, Instant};

/// Work takes at most one part in this number of a processor in the long run: a quarter.
const CPU_SHARE_DIVISOR: u32 = 4;
/// Work that is done without a pause: thousands of small versions, or a few of the largest.
const BURST_TIME: Duration = Duration::from_secs(2);
/// Minimum cost of a version, because frames and the answer are not measured. So there are 500
/// versions a second at most.
const MIN_VERSION_COST: Duration = Duration::from_micros(500);
/// The longest pause. Work that took long because the machine was busy must not delay the next
/// change.
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// Work for the server that no pause has made up for.
#[derive(Debug)]
pub(super) struct CpuBudget {
    spent: Duration,
    updated_at: Instant,
}

impl CpuBudget {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            spent: Duration::ZERO,
            updated_at: now,
        }
    }

    /// Adds a version that took this time. Returns the pause before the next one.
    pub(super) fn pause_after(&mut self, took: Duration, now: Instant) -> Duration {
        let recovered = now.saturating_duration_since(self.updated_at) / CPU_SHARE_DIVISOR;
        self.updated_at = now;
        self.spent = (self.spent.saturating_sub(recovered) + took.max(MIN_VERSION_COST))
            .min(BURST_TIME + MAX_PAUSE / CPU_SHARE_DIVISOR);
        self.spent.saturating_sub(BURST_TIME) * CPU_SHARE_DIVISOR
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How long `count` versions take that are there at once.
    fn span(count: u32, took: Duration) -> Duration {
        let start = Instant::now();
        let mut work = CpuBudget::new(start);
        let mut now = start;
        for _ in 0..count {
            now += took;
            now += work.pause_after(took, now);
        }
        now - start
    }

    #[test]
    fn a_flood_of_versions_takes_a_part_of_a_processor() {
        for (count, took) in [(100_000, 300), (100_000, 1_000), (1_000, 100_000)] {
            let took = Duration::from_micros(took);
            let span = span(count, took);
            let work = took.max(MIN_VERSION_COST) * count;
            assert!(
                span >= (work - BURST_TIME) * CPU_SHARE_DIVISOR - MAX_PAUSE,
                "{count} of {took:?} within {span:?}"
            );
            assert!(
                span <= work * CPU_SHARE_DIVISOR,
                "{count} of {took:?} within {span:?}"
            );
        }
    }

    #[test]
    fn changes_that_are_honest_do_not_wait() {
        let start = Instant::now();
        for (count, every, took) in [
            (10_000, 4_000, 900),
            (20, 0, 100_000),
            (4_000, 0, 500),
            (100, 1_000_000, 240_000),
        ] {
            let mut work = CpuBudget::new(start);
            for number in 1..=count {
                let now = start + Duration::from_micros(every) * number;
                let took = Duration::from_micros(took);
                assert_eq!(
                    work.pause_after(took, now),
                    Duration::ZERO,
                    "{number} of {count}"
                );
            }
        }
    }

    #[test]
    fn no_rest_is_long() {
        let start = Instant::now();
        assert_eq!(
            CpuBudget::new(start).pause_after(Duration::from_secs(3_600), start),
            MAX_PAUSE
        );
    }
}
