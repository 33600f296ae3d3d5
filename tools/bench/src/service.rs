//! The whole service: on a Redis Cluster that is far away, while its configuration changes, and with features that are off by default.

pub(crate) mod callers;
pub(crate) mod features;
mod load;
pub(crate) mod reloads;
pub(crate) mod round_trips;
