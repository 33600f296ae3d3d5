//! The door: one request in, one answer and its facts out.

use std::sync::Arc;
use std::time::Instant;

use thiserror::Error;

use crate::store::{Store, StoreError};
use crate::{Checked, Configuration, Request, Timestamp};

/// How to count and answer, whatever the limits are.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Put before every counter key, as it is.
    pub key_prefix: String,
    /// From which share of a limit on hits count as near it.
    pub near_limit_ratio: f32,
    /// A counter outlives its window by a random time below this, in seconds; 0 is none.
    pub expiration_jitter: u32,
    /// What a refused request charges.
    pub over_limit_keys: OverLimitKeys,
    /// Size of the cache of counters known to be over their limit; 0 is none, less than 512 KiB is 512 KiB.
    pub local_cache_bytes: usize,
    /// Every request passes; what would have been refused is counted.
    pub global_shadow_mode: bool,
    /// Every limit is a quota: a request is refused only when all of its descriptors are.
    pub global_quota_mode: bool,
    /// Answer with [`crate::LimitHeaders`].
    pub response_headers: bool,
    /// Answer with dynamic metadata.
    pub dynamic_metadata: bool,
}

/// What a refused request charges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OverLimitKeys {
    /// Every counter of the request.
    #[default]
    Increment,
    /// Only the counters that are over their limit. Costs a read before every charge.
    StopIncrement,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            key_prefix: String::new(),
            near_limit_ratio: 0.8,
            expiration_jitter: 300,
            over_limit_keys: OverLimitKeys::Increment,
            local_cache_bytes: 0,
            global_shadow_mode: false,
            global_quota_mode: false,
            response_headers: false,
            dynamic_metadata: false,
        }
    }
}

/// Why a request has no answer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Error {
    /// The request names no domain.
    #[error("rate limit domain must not be empty")]
    EmptyDomain,
    /// The request has no descriptor.
    #[error("rate limit descriptor list must not be empty")]
    NoDescriptors,
    /// No configuration was loaded yet.
    #[error("no rate limit configuration loaded")]
    NoConfiguration,
    /// A descriptor brings a limit whose unit is not one of 1 to 7.
    #[error("descriptor {descriptor}: the limit override has no valid unit: {unit} is not one of 1 to 7")]
    InvalidOverride {
        /// The descriptor's index.
        descriptor: usize,
        /// The unit's wire number.
        unit: i32,
    },
    /// A descriptor asks for more hits than a counter can hold.
    #[error("descriptor {descriptor}: hits_addend {hits} is above 9223372036854775807")]
    InvalidHits {
        /// The descriptor's index.
        descriptor: usize,
        /// The hits asked for.
        hits: u64,
    },
    /// The counters could not be read or charged.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Gauges of the over-limit cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LocalCacheStats {
    /// Entries dropped to make room.
    pub evacuate_count: u64,
    /// Entries dropped because their time was up.
    pub expired_count: u64,
    /// Entries now.
    pub entry_count: u64,
    /// Always 0: kept for dashboards that name it.
    pub average_access_time: u64,
    /// Lookups that found an entry.
    pub hit_count: u64,
    /// Lookups that found none.
    pub miss_count: u64,
    /// All lookups.
    pub lookup_count: u64,
    /// Entries replaced by one with the same key.
    pub overwrite_count: u64,
}

/// Decides requests. A clone shares everything.
#[derive(Debug, Clone)]
pub struct Limiter {
    store: Store,
}

impl Limiter {
    /// A limiter without configuration.
    #[must_use]
    pub fn new(store: Store, options: Options) -> Self {
        let _ = options;
        Self { store }
    }

    /// Same configuration, local cache and options, another store: one limiter per core, each with its own connections.
    #[must_use]
    pub fn with_store(&self, store: Store) -> Self {
        let _ = &self.store;
        Self { store }
    }

    /// Replaces the configuration, at once and for all clones.
    pub fn configure(&self, configuration: Configuration) {
        let _ = configuration;
    }

    /// The configuration in force.
    #[must_use]
    pub fn configuration(&self) -> Option<Arc<Configuration>> {
        None
    }

    /// Decides one request at `now`; store commands are given up at `deadline`.
    ///
    /// # Cancellation
    /// When the future is dropped before the store answered, counters may or may not have been charged.
    pub async fn check(&self, request: &Request, now: Timestamp, deadline: Instant) -> Checked {
        let _ = (request, now, deadline);
        Checked { facts: crate::Facts::default(), response: Err(Error::NoConfiguration) }
    }

    /// Gauges of the over-limit cache; none when it is off.
    #[must_use]
    pub fn local_cache_stats(&self) -> Option<LocalCacheStats> {
        None
    }
}
