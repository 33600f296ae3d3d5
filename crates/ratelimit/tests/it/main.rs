//! The rules of rate limiting, seen through the public door.

mod answers;
mod configuration;
mod contract;
mod fixture;
mod local_cache;
mod lookup;
mod memory;
mod properties;
mod redis;
