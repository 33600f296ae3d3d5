//! The API without a socket: requests to its router, over an engine in the same process.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod described;
mod layers;
mod refused;
mod support;
