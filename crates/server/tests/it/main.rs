//! The server from outside: real sockets, real Redis, real Envoy.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod cli;
mod deploy;
mod documents;
mod dropin;
mod hostile;
mod layers;
mod operate;
mod rls;
mod support;
mod tls;
mod traces;
mod workflows;
mod xds;
