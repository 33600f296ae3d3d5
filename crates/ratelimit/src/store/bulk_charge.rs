//! Hits that are requested from a counter in bulk, of which it may grant a part.

use super::Charge;

/// Hits that are requested from a counter. The hits of the charge are the maximum.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BulkCharge<'a> {
    pub(crate) charge: Charge<'a>,
    pub(crate) room: GrantBound,
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
        match self.room {
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
                room: GrantBound::UpToLimit { step },
            };
            assert_eq!(ask.granted(count), granted, "{hits} by {step} at {count}");
            assert_eq!(
                BulkCharge {
                    charge,
                    room: GrantBound::Unbounded
                }
                .granted(count),
                hits
            );
        }
    }
}
