//! A client of memcached for counters: reads them with one round trip for each server, and changes them in the background.
//!
//! A [`Client`] belongs to one core. It has one connection to each server, which all calls of the core share: what waits is
//! written together, and replies are matched to commands by their order. So a counter that is read after it was changed
//! through the same client is read with that change.
//!
//! memcached is not asked to be there: a counter that cannot be read is [`CounterRead::Unknown`], and a change that cannot be made
//! is counted in [`Stats`]. Nothing is ever waited for longer than [`Config::timeout`].
//!
//! No crate was found that does this. `async-memcached` and `memcache-async` have one request at a time on a connection and no
//! TLS; `rsmc` speaks the binary protocol that memcached has given up, and pools connections that callers check out.
//!
//! **Invariant:** no rule of rate limits is here, no environment and no metrics library.

mod charge;
mod client;
mod config;
mod key;
mod link;
mod node;
mod pending;
mod servers;
mod stats;
#[cfg(feature = "test-util")]
pub mod test_util;
mod wire;

pub use charge::{Change, Charge, Expiry};
pub use client::Client;
pub use config::Config;
pub use key::Name;
pub use pending::CounterRead;
pub use servers::Servers;
pub use stats::Stats;
