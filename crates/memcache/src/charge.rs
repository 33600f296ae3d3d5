//! A change of one counter.

use crate::pending::CounterRead;

/// How hits change a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// They are added. A counter that is not there is made.
    Add,
    /// They are subtracted, down to zero.
    Subtract,
}

/// A change of one counter.
#[derive(Debug, Clone, Copy)]
pub struct Charge<'k> {
    /// The counter, as [`crate::Name`] writes it.
    pub key: &'k [u8],
    /// Whether hits are added or subtracted.
    pub change: Change,
    /// How many.
    pub hits: u64,
    /// What was read of the counter before.
    pub found: CounterRead,
    /// When the counter expires, if this makes it.
    pub expiry: Expiry,
}

/// When a counter expires, as memcached reads it: seconds from now up to 30 days, and seconds since the Unix epoch above that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expiry(pub(crate) u64);

impl Expiry {
    /// The longest time that memcached takes for a time from now.
    const RELATIVE: u64 = 30 * 86_400;

    /// `seconds` after `now`, which is in seconds since the Unix epoch.
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
