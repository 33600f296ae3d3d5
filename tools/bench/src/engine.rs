//! The Redis engine beside older designs and other clients.

pub(crate) mod connections;
mod load;
pub(crate) mod pipelines;
pub(crate) mod pipelining;

pub(crate) use load::{Load, call};
