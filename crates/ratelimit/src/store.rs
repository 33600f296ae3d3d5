//! Where counters live.

mod counter_key;
mod counters;
mod memory;
mod redis;

use std::time::Instant;

use smallvec::SmallVec;
use thiserror::Error;
use tidegate_pipeline::CommandError;

pub(crate) use counter_key::{Scope, write as write_counter_key};
pub use memory::MemoryStore;
pub use redis::RedisStore;

use crate::window::{Seconds, Window};

/// Where counters live.
#[derive(Debug, Clone)]
pub enum Store {
    /// In this process.
    Memory(MemoryStore),
    /// In Redis, shared by all processes that use it.
    Redis(RedisStore),
}

/// Why counters could not be read or charged.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StoreError {
    /// Redis did not answer as it should have. The text is the engine's, or that of Redis.
    #[error(transparent)]
    Redis(#[from] CommandError),
    /// A counter would exceed 2^63 - 1. The text is that of Redis.
    #[error("ERR increment or decrement would overflow")]
    Overflow,
    /// A counter in Redis holds something that this service did not write.
    #[error("a counter holds '{value}' where a number of hits was expected")]
    NotACount {
        /// What it holds.
        value: String,
    },
}

/// One counter, and what to do to it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Charge<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) hits: i64,
    pub(crate) change: Change,
    pub(crate) window: Window,
    /// Seconds until a store that expires its counters may drop this one.
    pub(crate) time_to_live: u32,
}

/// What hits do to a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// They are added.
    Charge,
    /// They are given back; the counter stops at zero.
    Refund,
}

/// One count per charge, in their order.
pub(crate) type Totals = SmallVec<[u64; 4]>;

impl Store {
    /// Reads the counters; one that does not exist is 0.
    pub(crate) async fn read(&self, charges: &[Charge<'_>], deadline: Instant) -> Result<Totals, StoreError> {
        match self {
            Self::Memory(store) => Ok(store.read(charges)),
            Self::Redis(store) => store.read(charges, deadline).await,
        }
    }

    /// Does all charges, in their order, and returns what each counter holds after its own. With an error, charges may or
    /// may not have been done.
    pub(crate) async fn add(
        &self,
        charges: &[Charge<'_>],
        now: Seconds,
        deadline: Instant,
    ) -> Result<Totals, StoreError> {
        match self {
            Self::Memory(store) => store.add(charges, now),
            Self::Redis(store) => store.add(charges, deadline).await,
        }
    }
}
