//! What those who run the server meet: the process, its settings, its health and its numbers.

mod demo;
mod drain;
mod health;
mod logs;
mod manager;
mod mapping;
pub(crate) mod metrics;
mod ports;
pub(crate) mod process;
mod profiles;
mod settings;
mod sinks;
mod statsd;
mod supervise;
