//! Counts of one limit.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tidegate_ratelimit::LimitDelta;

/// Counts of one limit.
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

/// Counts of one limit that one core writes and others read. They fill a cache line of the
/// processor.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct SharedLimitCounts([AtomicU64; 7]);

impl LimitCounts {
    /// Adds the hits of one call. Clients choose the number of hits, so sums saturate: an overflow
    /// would look like a restart.
    /// restart.
    pub(super) fn add(&mut self, tally: &LimitDelta) {
        self.merge(&Self::from_numbers(numbers(tally)));
    }

    pub(super) fn merge(&mut self, other: &Self) {
        for (count, more) in [
            (&mut self.total_hits, other.total_hits),
            (&mut self.over_limit, other.over_limit),
            (&mut self.near_limit, other.near_limit),
            (&mut self.within_limit, other.within_limit),
            (
                &mut self.over_limit_with_local_cache,
                other.over_limit_with_local_cache,
            ),
            (&mut self.shadow_mode, other.shadow_mode),
            (&mut self.total_negative_hits, other.total_negative_hits),
        ] {
            *count = count.saturating_add(more);
        }
    }

    fn from_numbers(numbers: [u64; 7]) -> Self {
        let [
            total_hits,
            over_limit,
            near_limit,
            within_limit,
            over_limit_with_local_cache,
            shadow_mode,
            refunded,
        ] = numbers;
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
    /// Adds the hits of one call, like [`LimitCounts::add`].
    pub(super) fn add(&self, tally: &LimitDelta) {
        for (count, more) in self.0.iter().zip(numbers(tally)) {
            // Most numbers are zero, and an atomic addition costs more than a comparison.
            if more > 0 {
                // The closure always returns a value, so this cannot fail.
                let _ =
                    count.fetch_update(Relaxed, Relaxed, |count| Some(count.saturating_add(more)));
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

fn numbers(tally: &LimitDelta) -> [u64; 7] {
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

#[cfg(test)]
mod tests {
    use tidegate_ratelimit::StatsKey;

    use super::*;

    #[test]
    fn hits_that_clients_choose_make_no_count_less() {
        let tally = |hits| LimitDelta {
            stats_key: StatsKey::default(),
            total_hits: hits,
            over_limit: hits,
            near_limit: 0,
            within_limit: 1,
            over_limit_with_local_cache: 0,
            shadow_mode: hits,
            total_negative_hits: 0,
        };
        let shared = SharedLimitCounts::default();
        let mut own = LimitCounts::default();
        for hits in [i64::MAX.unsigned_abs(), i64::MAX.unsigned_abs(), 5, 1] {
            let before = shared.read();
            shared.add(&tally(hits));
            own.add(&tally(hits));
            assert_eq!(shared.read(), own);
            assert!(
                own.total_hits >= before.total_hits && own.over_limit >= before.over_limit,
                "{own:?}"
            );
        }
        assert_eq!(
            (own.total_hits, own.shadow_mode, own.within_limit),
            (u64::MAX, u64::MAX, 4)
        );
        own.merge(&shared.read());
        assert_eq!(
            (own.total_hits, own.within_limit),
            (u64::MAX, 8),
            "the sum over cores"
        );
    }
}
