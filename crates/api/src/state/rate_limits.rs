//! Limiter of the embedding server, the store of its overrides, and what they pause.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_ratelimit::{
    Configuration, Entry as RateEntry, Limit, LimitOverride, Limiter, OverrideEffect,
    OverrideStore, Overrides, StoreError, Timestamp, Units,
};
use tidegate_workflow::Limit as JobLimit;

use crate::http::time::Rfc3339;
use crate::views::why::PausedBy;

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

/// Overrides, and the configuration that they are about, at one time.
pub(crate) struct Pauses {
    overrides: Arc<Overrides>,
    configuration: Option<Arc<Configuration>>,
    now: Timestamp,
}

impl Pauses {
    pub(crate) fn new(limits: &RateLimits) -> Self {
        Self {
            overrides: limits.limiter.overrides(),
            configuration: limits.limiter.configuration(),
            now: limits.now(),
        }
    }

    /// Returns the pause of the limit of a job.
    pub(crate) fn of_limit(&self, limit: &JobLimit) -> Option<PausedBy<'_>> {
        let JobLimit::Units {
            domain, entries, ..
        } = limit
        else {
            return None;
        };
        let entry = |(key, value): &(String, String)| RateEntry {
            key: key.clone(),
            value: value.clone(),
        };
        let entries: Vec<RateEntry> = entries.iter().map(entry).collect();
        let key = Units {
            domain,
            entries: &entries,
            hits: NonZeroU32::MIN,
        };
        let configuration = self.configuration.as_deref();
        let rule = configuration.and_then(|all| all.lookup().find(domain, &entries));
        let rule = rule.map(|found| found.limit);
        let pause = pause_of(&self.overrides, rule, &key, self.now)?;
        Some(PausedBy {
            by: &pause.by,
            until: pause.until.map(Rfc3339::from),
            reason: &pause.reason,
        })
    }
}

/// Returns the pause of a key or of its rule that is in effect: one that requests wait for, or else
/// the one that ends last.
pub(crate) fn pause_of<'o>(
    overrides: &'o Overrides,
    rule: Option<&Limit>,
    key: &Units<'_>,
    now: Timestamp,
) -> Option<&'o LimitOverride> {
    let of_rule = rule
        .into_iter()
        .flat_map(|rule| overrides.for_rule(&rule.stats_key));
    let pauses = of_rule
        .chain(overrides.for_key(key.domain, key.entries))
        .filter(|stored| !stored.has_ended(now));
    let strength = |stored: &&LimitOverride| match stored.effect {
        OverrideEffect::Paused(reach) | OverrideEffect::Throttled(reach) => {
            Some((reach, stored.until.unwrap_or(Timestamp(u64::MAX))))
        }
        OverrideEffect::Scaled(_) => None,
    };
    pauses
        .filter(|stored| strength(stored).is_some())
        .max_by_key(strength)
}
