//! Limits: their configuration and overrides, checks without a charge, top keys, and waiting jobs.

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

/// Time for which a call waits for the store of the limiter.
const PATIENCE: Duration = Duration::from_secs(1);
/// Largest body of these calls, in bytes. Its parsed form takes some thirty times as much memory.
const MOST_BODY: usize = 64 * 1024;

/// Limiter of the server that embeds the API, and the store of its overrides. Clones share both.
#[derive(Debug, Clone)]
pub struct RateLimits {
    /// Limiter that decides the server's requests.
    pub limiter: Limiter,
    /// Store of the overrides.
    pub overrides: OverrideStore,
    /// Clock of the limits.
    pub clock: fn() -> Timestamp,
}

impl RateLimits {
    /// Activates the stored overrides at this server, and returns them.
    async fn refresh(&self) -> Result<Arc<Overrides>, StoreError> {
        self.limiter
            .refresh_overrides(&self.overrides, self.now(), deadline())
            .await
    }

    pub(crate) fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// Makes a separate limiter without limits.
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

/// Problem of a failure of the limiter's store, which may have carried out the call.
fn without_store(error: &StoreError) -> Problem {
    Problem::new(
        Code::StoreUnavailable,
        format!("the store of rate limits: {error}"),
    )
}

pub(crate) fn moment(at: Timestamp) -> Rfc3339 {
    Rfc3339(tidegate_workflow::Timestamp::from_micros(at.0))
}

/// Returns entries as pairs for JSON.
fn pairs(entries: &[Entry]) -> Vec<(&str, &str)> {
    entries
        .iter()
        .map(|entry| (&*entry.key, &*entry.value))
        .collect()
}
