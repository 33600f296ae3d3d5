//! The server from outside: real sockets, real Redis, real Envoy.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod bad_input;
mod check;
mod cli;
mod documents;
mod envoy;
mod grpc;
mod health;
mod json;
mod metrics;
mod process;
mod redis;
mod reload;
mod settings;
mod support;
mod workflows;
