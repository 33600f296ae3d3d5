//! The whole service on a Redis Cluster that is far away.

pub(crate) mod callers;
mod load;
pub(crate) mod round_trips;
