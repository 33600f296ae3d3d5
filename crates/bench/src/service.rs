//! The whole service: on a Redis Cluster that is far away, and while its configuration changes.

pub(crate) mod callers;
mod load;
pub(crate) mod reloads;
pub(crate) mod round_trips;
