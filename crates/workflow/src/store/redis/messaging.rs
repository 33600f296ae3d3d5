//! The servers of a store: their heartbeats, their shared tables and their messages to each other.

mod servers;
pub(crate) mod subscription;
