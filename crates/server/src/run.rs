//! TODO: say what these modules are for.

pub(crate) mod banner;
mod build;
mod demo;
pub(crate) mod drain;
mod limiter;
mod ports;
pub(crate) mod run;
