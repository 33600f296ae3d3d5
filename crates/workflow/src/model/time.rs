//! Points in time as stores keep them.

use std::num::NonZeroU64;
use std::ops::Add;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A point in time: microseconds since 1970, UTC. A double represents it exactly, so it can be a
/// score in Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "u64", into = "u64")]
pub struct Timestamp(
    /// Microseconds plus one, so that `Option<Timestamp>` takes no more memory than `Timestamp`: a
    /// workflow has many.
    NonZeroU64,
);

impl Timestamp {
    /// The time `micros` microseconds after the beginning of 1970.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(NonZeroU64::MIN.saturating_add(micros))
    }

    /// Microseconds since 1970.
    #[must_use]
    pub const fn micros(self) -> u64 {
        self.0.get() - 1
    }

    /// Milliseconds since 1970, rounded down.
    #[must_use]
    pub const fn millis(self) -> u64 {
        self.micros() / 1_000
    }

    /// The duration since `earlier`; zero if that is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.micros().saturating_sub(earlier.micros()))
    }

    /// The time that is `span` earlier; at the earliest 1970.
    #[must_use]
    pub fn before(self, span: Duration) -> Self {
        Self::from_micros(
            self.micros()
                .saturating_sub(u64::try_from(span.as_micros()).unwrap_or(u64::MAX)),
        )
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        Self(
            self.0
                .saturating_add(u64::try_from(span.as_micros()).unwrap_or(u64::MAX)),
        )
    }
}

impl Default for Timestamp {
    /// The beginning of 1970.
    fn default() -> Self {
        Self::from_micros(0)
    }
}

impl From<u64> for Timestamp {
    fn from(micros: u64) -> Self {
        Self::from_micros(micros)
    }
}

impl From<Timestamp> for u64 {
    fn from(at: Timestamp) -> Self {
        at.micros()
    }
}
