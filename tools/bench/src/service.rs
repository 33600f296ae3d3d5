//! The whole service on a Redis Cluster that is far away.

mod callers;
mod far_servers;
mod round_trips;

pub(crate) use callers::Callers;
pub(crate) use round_trips::{RoundTrips, summary};
