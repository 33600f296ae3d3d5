//! The lock that callers and connections share.
//!
//! Unit tests use loom's lock in its place, which tries all orders in which threads can take it. It works only inside a
//! model: a unit test that makes a call or a node must be a loom model.

#[cfg(test)]
pub(crate) use loom::sync::{Mutex, MutexGuard};
#[cfg(not(test))]
pub(crate) use std::sync::{Mutex, MutexGuard};
