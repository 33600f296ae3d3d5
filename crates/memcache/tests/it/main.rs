//! The client with real servers, and with peers that misbehave on purpose.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod counting;
mod faults;
mod layers;
mod peer;
mod tls;
