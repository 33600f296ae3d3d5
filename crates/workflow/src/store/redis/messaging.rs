//! Messages between the servers of a store: heartbeats, shared tables and subscriptions.

mod servers;
mod shared_tables;
pub(crate) mod subscription;
