//! Comparisons of the Redis engine with older designs and other clients.

mod connections;
mod load;
mod pipelines;
mod pipelining;

pub(crate) use connections::Connections;
pub(crate) use load::{Design, EngineLoad};
pub(crate) use pipelines::Pipelines;
pub(crate) use pipelining::Pipelining;
