//! Load for any server of Envoy's rate limit protocol.

mod body;
pub(crate) mod command;
mod connection;
mod keys;
mod pace;
mod report;
mod run;
mod session;

pub(crate) use body::{Shape, one_body};
pub(crate) use keys::{Distribution, Keys};
pub(crate) use pace::CallSchedule;
pub(crate) use run::{Load, PATH};
pub(crate) use session::Session;
