//! Limiter of the embedding server, and the store of its overrides.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_ratelimit::{Limiter, OverrideStore, Overrides, StoreError, Timestamp};

/// Time for which a call waits for the store of the limiter.
const STORE_TIMEOUT: Duration = Duration::from_secs(1);

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
    pub(crate) async fn refresh(&self) -> Result<Arc<Overrides>, StoreError> {
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

pub(crate) fn deadline() -> Instant {
    Instant::now() + STORE_TIMEOUT
}
