//! The engine against real Redis servers, and against streams that no real server would send.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod connections;
mod connects;
mod faults;
mod generated;
mod layers;
mod servers;
mod support;
