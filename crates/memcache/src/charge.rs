//! A change of one counter.

use crate::pending::CounterRead;

/// Direction in which hits change a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Hits are added. A missing counter is created.
    Add,
    /// Hits are subtracted, down to zero.
    Subtract,
}

/// A change of one counter.
#[derive(Debug, Clone, Copy)]
pub struct Charge<'k> {
    /// Key of the counter, in the form of [`crate::MemcacheKey`].
    pub key: &'k [u8],
    /// Whether hits are added or subtracted.
    pub change: Change,
    /// Number of hits to add or subtract.
    pub hits: u64,
    /// Result of the read that preceded this change. It decides whether an `add` is sent first.
    pub found: CounterRead,
    /// Expiry of the counter if this change creates it.
    pub expiry: Expiry,
}

/// Expiry of a counter in the form that memcached reads: up to 30 days it is a number of seconds
/// from now, above that it is a Unix time in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expiry(pub(crate) u64);

impl Expiry {
    /// Longest time in seconds that memcached reads as relative to now.
    const RELATIVE: u64 = 30 * 86_400;

    /// Returns the expiry `seconds` after `now`, which is a Unix time in seconds.
    #[must_use]
    pub fn after(seconds: u64, now: u64) -> Self {
        Self(if seconds <= Self::RELATIVE {
            seconds
        } else {
            now.saturating_add(seconds)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_beyond_thirty_days_are_moments() {
        for (seconds, expiry) in [
            (1, 1),
            (2_592_000, 2_592_000),
            (2_592_001, 1_002_592_001),
            (31_536_300, 1_031_536_300),
        ] {
            assert_eq!(Expiry::after(seconds, 1_000_000_000).0, expiry);
        }
    }
}
