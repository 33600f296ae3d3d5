//! Limits: their configuration, what overrides them, what a request would be answered, which keys are asked for most, and which jobs wait under them.

pub(crate) mod check;
pub(crate) mod configuration;
pub(crate) mod overrides;
pub(crate) mod top;
pub(crate) mod waiting;

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Deserialize;
use tidegate_ratelimit::{Entry, Limiter, OverrideStore, Overrides, StoreError, Timestamp};

use crate::http::body;
use crate::http::problem::{Code, Problem};
use crate::http::time::Rfc3339;

/// How long a call waits for the store of the limiter.
const PATIENCE: Duration = Duration::from_secs(1);
/// Largest body of these calls. In memory, what it says is some thirty times as large.
const MOST_BODY: usize = 64 * 1024;

/// The limiter of the process that serves the API, and where overrides of its limits are kept. Clones are the same.
#[derive(Debug, Clone)]
pub struct RateLimits {
    /// Counts where requests are counted.
    pub limiter: Limiter,
    /// Where overrides are kept.
    pub overrides: OverrideStore,
    /// The clock by which limits are counted.
    pub clock: fn() -> Timestamp,
}

impl RateLimits {
    /// Puts the overrides that are kept in force at this server, and returns them.
    async fn refresh(&self) -> Result<Arc<Overrides>, StoreError> {
        self.limiter
            .refresh_overrides(&self.overrides, self.now(), deadline())
            .await
    }

    pub(crate) fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// A limiter of its own without limits.
    #[cfg(test)]
    pub(crate) fn in_memory() -> Self {
        use tidegate_ratelimit::{MemoryBounds, MemoryStore, Options, Store};
        let store = Store::Memory(MemoryStore::new(MemoryBounds::default()));
        let limiter = Limiter::new(store, Options::default());
        Self {
            limiter,
            overrides: OverrideStore::memory(),
            clock: Timestamp::default,
        }
    }
}

fn deadline() -> Instant {
    Instant::now() + PATIENCE
}

fn read<'de, T: Deserialize<'de>>(text: &'de [u8]) -> Result<T, Problem> {
    if text.len() > MOST_BODY {
        return Err(Problem::new(
            Code::PayloadTooLarge,
            format!("the body has more than {MOST_BODY} bytes"),
        ));
    }
    body::read(text)
}

/// The store of the limiter failed. It may have done what it was asked to do.
fn without_store(error: &StoreError) -> Problem {
    Problem::new(
        Code::StoreUnavailable,
        format!("the store of rate limits: {error}"),
    )
}

pub(crate) fn moment(at: Timestamp) -> Rfc3339 {
    Rfc3339(tidegate_workflow::Timestamp::from_micros(at.0))
}

/// Entries as they are shown.
fn pairs(entries: &[Entry]) -> Vec<(&str, &str)> {
    entries
        .iter()
        .map(|entry| (&*entry.key, &*entry.value))
        .collect()
}
