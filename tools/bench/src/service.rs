//! Comparisons of the whole service on a distant Redis Cluster.

mod callers;
mod far_servers;
mod round_trips;

pub(crate) use callers::Callers;
pub(crate) use round_trips::{RoundTrips, summary};
