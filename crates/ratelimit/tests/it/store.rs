//! What stores do: each by itself, and all alike.

mod contract;
mod flood;
mod memcache;
mod memory;
mod redis;
mod stores;
mod take;

pub(crate) use stores::{for_every_store, memcached};
