//! Counts of one limit.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tidegate_ratelimit::LimitDelta;

/// Number of counts of a limit.
pub(super) const COUNTS: usize = 7;

/// Defines the counts of a limit by their names, which are also those of the metrics.
macro_rules! limit_counts {
    ($($name:ident),+) => {
        /// Counts of one limit.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub(super) struct LimitCounts {
            $(pub(super) $name: u64),+
        }

        impl LimitCounts {
            /// Ends of the dotted names of the metrics, in the order of [`LimitCounts::numbers`].
            pub(super) const SUFFIXES: [&str; COUNTS] = [$(concat!(".", stringify!($name))),+];

            fn from_numbers([$($name),+]: [u64; COUNTS]) -> Self {
                Self { $($name),+ }
            }

            pub(super) fn numbers(&self) -> [u64; COUNTS] {
                [$(self.$name),+]
            }

            pub(super) fn merge(&mut self, other: &Self) {
                $(self.$name = self.$name.saturating_add(other.$name);)+
            }
        }

        fn numbers(delta: &LimitDelta) -> [u64; COUNTS] {
            [$(delta.$name),+]
        }
    };
}

limit_counts! {
    total_hits,
    over_limit,
    near_limit,
    within_limit,
    over_limit_with_local_cache,
    shadow_mode,
    total_negative_hits
}

/// Counts of one limit that one core writes and others read. They fill a cache line of the
/// processor.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct SharedLimitCounts([AtomicU64; COUNTS]);

impl LimitCounts {
    /// Adds the hits of one call. Clients choose the number of hits, so sums saturate: an overflow
    /// would look like a restart.
    pub(super) fn add(&mut self, delta: &LimitDelta) {
        self.merge(&Self::from_numbers(numbers(delta)));
    }
}

impl SharedLimitCounts {
    /// Adds the hits of one call, like [`LimitCounts::add`].
    pub(super) fn add(&self, delta: &LimitDelta) {
        for (count, more) in self.0.iter().zip(numbers(delta)) {
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

#[cfg(test)]
mod tests {
    use tidegate_ratelimit::StatsKey;

    use super::*;

    #[test]
    fn hits_that_clients_choose_make_no_count_less() {
        let delta = |hits| LimitDelta {
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
            shared.add(&delta(hits));
            own.add(&delta(hits));
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
