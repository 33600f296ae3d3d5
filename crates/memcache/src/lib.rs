//! A client of memcached for counters: reads them with one round trip to each server, and changes
//! them in the background.
//!
//! A [`Client`] belongs to one core. It has one connection to each server, which all calls of the
//! core share. Queued commands are written in one batch, and replies are matched to commands by
//! their order. So a read that follows a change through the same client includes that change.
//!
//! memcached may be unavailable: a counter that cannot be read is [`CounterRead::Unknown`], and a
//! change that fails is counted in [`Stats`]. No wait is longer than [`Config::timeout`].
//!
//! No existing crate does this. `async-memcached` and `memcache-async` have one request at a time
//! on a connection and no TLS. `rsmc` speaks the deprecated binary protocol and pools connections
//! that callers check out.
//!
//! **Invariant:** this crate has no rules of rate limits, reads no environment and uses no metrics
//! library.

mod charge;
mod client;
mod key;
mod link;
mod node;
mod pending;
mod servers;
mod stats;
#[cfg(feature = "test-util")]
pub mod test_util;
mod wire;

pub use charge::{ChangeDirection, Charge, Expiry};
pub use client::{Client, Config};
pub use key::MemcacheKey;
pub use pending::CounterRead;
pub use servers::Servers;
pub use stats::Stats;
