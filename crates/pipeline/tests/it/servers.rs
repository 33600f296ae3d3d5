//! Every kind of server that the engine speaks to: one, a cluster, the one that sentinels name, encrypted, Valkey.

pub(crate) mod cluster;
mod commands;
mod oracle;
mod sentinel;
mod sharing;
mod stats;
mod subscriber;
mod tls;
mod valkey;
