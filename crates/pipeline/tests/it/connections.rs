//! Connections: when they open, who gets them, and what breaks or blocks them.

mod fairness;
mod links;
mod pool;
mod round_trips;
pub(crate) mod scripted;
