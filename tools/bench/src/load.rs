//! Load for any server of Envoy's rate limit protocol.

mod body;
pub(crate) mod command;
mod connection;
mod keys;
mod report;
mod run;
mod schedule;
mod session;

pub(crate) use body::{Shape, one_body};
pub(crate) use keys::{Distribution, KeyStream};
pub(crate) use run::{Load, PATH};
pub(crate) use session::Session;
