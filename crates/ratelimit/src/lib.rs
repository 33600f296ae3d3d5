//! Envoy's rate limit semantics: configuration, lookup, counting and decisions.
//!
//! **Invariant:** testable without a socket; knows no protobuf, HTTP, environment, clock or metrics library. Time is an
//! argument; what happened is returned as facts, and the server counts them.

mod decision;
mod request;

pub use decision::{Checked, Code, CurrentLimit, Facts, LimitHeaders, Response, Status, Tally};
pub use request::{Descriptor, Entry, Override, Request, Timestamp};
