//! Where counters live.

pub(crate) mod memory;
pub(crate) mod redis;

pub use memory::MemoryStore;
pub use redis::RedisStore;
use thiserror::Error;

/// Where counters live.
#[derive(Debug, Clone)]
pub enum Store {
    /// In this process.
    Memory(MemoryStore),
    /// In Redis, shared by all processes that use it.
    Redis(RedisStore),
}

/// Why counters could not be read or charged. The text is the engine's own, or Redis's.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StoreError {
    /// Redis did not answer as it should have.
    #[error(transparent)]
    Redis(#[from] tidegate_pipeline::CommandError),
    /// A counter would exceed 2^63 - 1.
    #[error("ERR increment or decrement would overflow")]
    Overflow,
}
