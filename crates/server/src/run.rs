//! Life of a server: its dependencies, its ports, its services and its end.

pub(crate) mod banner;
mod build;
mod demo;
pub(crate) mod drain;
mod limiter;
mod ports;
pub(crate) mod server;
