//! Times and time spans as the store keeps them.

use std::ops::Add;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A point in time: microseconds since 1970, UTC. It is exact as a double, so that it can be a score in Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The time `micros` microseconds after the beginning of 1970.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Microseconds since 1970.
    #[must_use]
    pub const fn micros(self) -> u64 {
        self.0
    }

    /// Milliseconds since 1970, rounded down.
    #[must_use]
    pub const fn millis(self) -> u64 {
        self.0 / 1_000
    }

    /// The time that passed since `earlier`; zero when it is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(span.as_micros()).unwrap_or(u64::MAX)))
    }
}
