//! The counter stores: Redis, memcached, and memory.

pub(crate) mod memcache;
pub(crate) mod memory;
pub(crate) mod redis;
