//! The load generator against small servers that misbehave in chosen ways, and each comparison in small.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod peer;
mod ratelimit;
mod tables;
