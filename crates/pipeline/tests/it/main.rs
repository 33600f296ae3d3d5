//! The engine against real Redis servers, and against streams that no real server would send.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;
mod commands;
mod endurance;
mod fairness;
mod fake;
mod faults;
mod foreign;
mod links;
mod load;
mod matrix;
mod mutation;
mod oracle;
mod pool;
mod properties;
mod proxy;
mod regression;
mod rejected;
mod rooms;
mod scripted;
mod sentinel;
mod splitter;
mod support;
mod tls;
mod valkey;
