//! Messages between the servers of a store: heartbeats, shared tables and subscriptions.

mod servers;
pub(crate) mod subscription;
