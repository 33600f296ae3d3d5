//! The counts of one limit.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tidegate_ratelimit::Tally;

/// The counts of one limit, as numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct LimitCounts {
    pub(super) total_hits: u64,
    pub(super) over_limit: u64,
    pub(super) near_limit: u64,
    pub(super) within_limit: u64,
    pub(super) over_limit_with_local_cache: u64,
    pub(super) shadow_mode: u64,
    pub(super) total_negative_hits: u64,
}

/// The counts of one limit that one core adds to and others read. Fills a line of the processor's cache.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct SharedLimitCounts([AtomicU64; 7]);

impl LimitCounts {
    /// Adds the hits of one call. Clients choose their number, so a sum wraps around instead of ending the process.
    pub(super) fn add(&mut self, tally: &Tally) {
        self.merge(&Self::from_numbers(numbers(tally)));
    }

    pub(super) fn merge(&mut self, other: &Self) {
        for (count, more) in [
            (&mut self.total_hits, other.total_hits),
            (&mut self.over_limit, other.over_limit),
            (&mut self.near_limit, other.near_limit),
            (&mut self.within_limit, other.within_limit),
            (&mut self.over_limit_with_local_cache, other.over_limit_with_local_cache),
            (&mut self.shadow_mode, other.shadow_mode),
            (&mut self.total_negative_hits, other.total_negative_hits),
        ] {
            *count = count.wrapping_add(more);
        }
    }

    fn from_numbers(numbers: [u64; 7]) -> Self {
        let [total_hits, over_limit, near_limit, within_limit, over_limit_with_local_cache, shadow_mode, refunded] =
            numbers;
        Self {
            total_hits,
            over_limit,
            near_limit,
            within_limit,
            over_limit_with_local_cache,
            shadow_mode,
            total_negative_hits: refunded,
        }
    }
}

impl SharedLimitCounts {
    /// As [`LimitCounts::add`].
    pub(super) fn add(&self, tally: &Tally) {
        for (count, more) in self.0.iter().zip(numbers(tally)) {
            // Most are zero, and an atomic addition costs more than a comparison.
            if more > 0 {
                count.fetch_add(more, Relaxed);
            }
        }
    }

    pub(super) fn read(&self) -> LimitCounts {
        LimitCounts::from_numbers(self.0.each_ref().map(|count| count.load(Relaxed)))
    }

    pub(super) fn clear(&self) {
        self.0.iter().for_each(|count| count.store(0, Relaxed));
    }
}

fn numbers(tally: &Tally) -> [u64; 7] {
    [
        tally.total_hits,
        tally.over_limit,
        tally.near_limit,
        tally.within_limit,
        tally.over_limit_with_local_cache,
        tally.shadow_mode,
        tally.total_negative_hits,
    ]
}
