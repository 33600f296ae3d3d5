//! Charges of counters, what counters grant, and why they fail.

use smallvec::SmallVec;
use thiserror::Error;
use tidegate_pipeline::CommandError;

use crate::model::Window;

/// Maximum value of a counter, and of the hits of a charge: Redis stores counters as signed numbers
/// of 64 bits.
pub(crate) const MAX_COUNT: u64 = i64::MAX.unsigned_abs();

/// Reason why counters could not be read or charged.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StoreError {
    /// A command failed. The text is that of Redis or of the engine.
    #[error(transparent)]
    Redis(#[from] CommandError),
    /// A counter in Redis has a value that this service did not write.
    #[error("a counter holds '{value}' where a number of hits was expected")]
    NotACount {
        /// The value.
        value: String,
    },
}

/// A counter, and how to change it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Charge<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) hits: i64,
    pub(crate) change: CounterChange,
    pub(crate) window: Window,
    /// Seconds until a store may expire the counter.
    pub(crate) time_to_live: u32,
    /// The limit that the counter is compared with.
    pub(crate) requests_per_unit: u32,
    /// Identifies the limit. All limits in requests have one number.
    pub(crate) limit: usize,
}

#[cfg(test)]
impl<'a> Charge<'a> {
    /// Adds hits to a counter of 5 a minute.
    pub(crate) fn for_test(key: &'a [u8], hits: i64) -> Self {
        let window = Window::containing(crate::model::Unit::Minute, crate::model::Seconds(0));
        Self {
            key,
            hits,
            change: CounterChange::Add,
            window,
            time_to_live: 60,
            requests_per_unit: 5,
            limit: 0,
        }
    }
}

/// Direction in which hits change a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CounterChange {
    /// Hits are added.
    Add,
    /// Hits are subtracted. The counter stops at zero.
    Refund,
}

/// One count per charge, in their order.
pub(crate) type Totals = SmallVec<[u64; 4]>;

/// Hits that are requested from a counter. The hits of the charge are the maximum.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BulkCharge<'a> {
    pub(crate) charge: Charge<'a>,
    pub(crate) bound: GrantBound,
}

/// Bound of the hits that are granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GrantBound {
    /// The hits that the limit leaves, rounded down to a multiple of `step`, which is not 0.
    UpToLimit { step: u64 },
    /// All requested hits.
    Unbounded,
}

/// Hits that a counter was charged with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) hits: u64,
    /// Value of the counter after the charge.
    pub(crate) total: u64,
}

impl BulkCharge<'_> {
    /// Returns the hits that a counter with the value `count` grants.
    pub(super) fn granted(&self, count: u64) -> i64 {
        match self.bound {
            GrantBound::Unbounded => self.charge.hits,
            GrantBound::UpToLimit { step } => {
                let left = u64::from(self.charge.requests_per_unit).saturating_sub(count);
                let hits = left.min(self.charge.hits.unsigned_abs());
                i64::try_from(hits - hits % step).expect("at most the limit, which has 32 bits")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_never_takes_a_counter_over_its_limit() {
        // Hits asked for of a counter of 5, step, count before, hits granted.
        let table = [
            (3, 1, 0, 3),
            (9, 1, 0, 5),
            (9, 2, 0, 4),
            (4, 4, 1, 4),
            (4, 4, 2, 0),
            (i64::MAX, 1, 4, 1),
            (1, 1, 5, 0),
            (1, 1, 900, 0),
            (1, 1, u64::MAX, 0),
            (0, 1, 0, 0),
        ];
        for (hits, step, count, granted) in table {
            let charge = Charge::for_test(b"", hits);
            let ask = BulkCharge {
                charge,
                bound: GrantBound::UpToLimit { step },
            };
            assert_eq!(ask.granted(count), granted, "{hits} by {step} at {count}");
            assert_eq!(
                BulkCharge {
                    charge,
                    bound: GrantBound::Unbounded
                }
                .granted(count),
                hits
            );
        }
    }
}
