//! Stores of counters: in memory, in Redis, or in memcached.

mod charge;
mod counter_key;
mod eviction;
mod memcache;
mod memory;
mod redis;
mod short_key;
mod window_counters;

pub use charge::StoreError;
pub(crate) use charge::{BulkCharge, Charge, CounterChange, Grant, GrantBound, MAX_COUNT, Totals};
pub(crate) use counter_key::Scope;
pub(crate) use counter_key::write as write_counter_key;
pub use memcache::MemcacheStore;
pub use memory::{MemoryBounds, MemoryStore};
pub use redis::RedisStore;

use std::time::Instant;

use crate::model::Seconds;
use eviction::{EvictionClass, Victims};
use short_key::Digests;
use window_counters::WindowCounters;

/// A store of counters.
#[derive(Debug, Clone)]
pub enum Store {
    /// In this process.
    Memory(MemoryStore),
    /// In Redis, shared by all processes that use it.
    Redis(RedisStore),
    /// In memcached, shared by all processes that use it. It counts approximately, and never fails.
    Memcache(MemcacheStore),
}

impl Store {
    /// Reads the counters. A missing counter is 0.
    pub(crate) async fn read(
        &self,
        charges: &[Charge<'_>],
        deadline: Instant,
    ) -> Result<Totals, StoreError> {
        match self {
            Self::Memory(store) => Ok(store.read(charges)),
            Self::Redis(store) => store.read(charges, deadline).await,
            Self::Memcache(store) => Ok(Box::pin(store.read(charges, deadline)).await),
        }
    }

    /// Makes all charges in their order, and returns the value of its counter after each. A full
    /// counter, at 2^63 - 1 or near it, stays full, and is over every limit.
    ///
    /// # Errors
    /// Some of the charges may have been made.
    pub(crate) async fn add(
        &self,
        charges: &[Charge<'_>],
        now: Seconds,
        deadline: Instant,
    ) -> Result<Totals, StoreError> {
        match self {
            Self::Memory(store) => Ok(store.add(charges, now)),
            Self::Redis(store) => store.add(charges, deadline).await,
            // The future is boxed, so that it does not enlarge those of the other stores.
            Self::Memcache(store) => Ok(Box::pin(store.add(charges, now, deadline)).await),
        }
    }

    /// Charges each counter with as many of the requested hits as it has room for. Returns one
    /// answer for each request, in their order: a failed one does not affect the others. Two
    /// requests to one counter are answered in sequence.
    ///
    /// # Errors
    /// The hits of a failed request may have been charged.
    pub(crate) async fn acquire(
        &self,
        requests: &[BulkCharge<'_>],
        now: Seconds,
        deadline: Instant,
    ) -> Vec<Result<Grant, StoreError>> {
        match self {
            Self::Memory(store) => store.acquire(requests, now),
            Self::Redis(store) => store.acquire(requests, deadline).await,
            Self::Memcache(store) => Box::pin(store.acquire(requests, now, deadline)).await,
        }
    }
}
