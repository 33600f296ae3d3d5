//! Stores of counters: in memory, in Redis, or in memcached.

mod bulk_charge;
mod counter_key;
mod eviction;
mod memcache;
mod memory;
mod redis;
mod short_key;
mod window_counters;

use std::time::Instant;

use smallvec::SmallVec;
use thiserror::Error;
use tidegate_pipeline::CommandError;

pub(crate) use bulk_charge::{BulkCharge, Grant, GrantBound};
pub(crate) use counter_key::{Scope, write as write_counter_key};
pub use memcache::MemcacheStore;
pub use memory::{MemoryBounds, MemoryStore};
pub use redis::RedisStore;

use crate::model::window::{Seconds, Window};

/// Maximum value of a counter, and of the hits of a charge: Redis stores counters as signed numbers
/// of 64 bits.
pub(crate) const MAX_COUNT: u64 = i64::MAX.unsigned_abs();

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

/// Reason why counters could not be read or charged.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StoreError {
    /// A command failed. The text is that of Redis or of the engine.
    #[error(transparent)]
    Redis(#[from] CommandError),
    /// A counter in Redis has a value that this service did not write.
    #[error("a counter holds '{value}' where a number of hits was expected")]
    NotACount {
        /// The value.
        value: String,
    },
}

/// A counter, and how to change it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Charge<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) hits: i64,
    pub(crate) change: CounterChange,
    pub(crate) window: Window,
    /// Seconds until a store may expire the counter.
    pub(crate) time_to_live: u32,
    /// The limit that the counter is compared with.
    pub(crate) requests_per_unit: u32,
    /// Identifies the limit. All limits in requests have one number.
    pub(crate) limit: usize,
}

#[cfg(test)]
impl<'a> Charge<'a> {
    /// Adds hits to a counter of 5 a minute.
    pub(crate) fn for_test(key: &'a [u8], hits: i64) -> Self {
        let window = Window::containing(crate::tree::Unit::Minute, Seconds(0));
        Self {
            key,
            hits,
            change: CounterChange::Add,
            window,
            time_to_live: 60,
            requests_per_unit: 5,
            limit: 0,
        }
    }
}

/// Direction in which hits change a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CounterChange {
    /// Hits are added.
    Add,
    /// Hits are subtracted. The counter stops at zero.
    Refund,
}

/// One count per charge, in their order.
pub(crate) type Totals = SmallVec<[u64; 4]>;

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
