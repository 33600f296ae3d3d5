//! The lock that callers and connections share.
//!
//! Unit tests use loom's lock instead, which tries all interleavings of threads. It works only
//! inside a loom model: a unit test that makes a call or a node must be one.

#[cfg(test)]
pub(crate) use loom::sync::{Mutex, MutexGuard};
#[cfg(not(test))]
pub(crate) use std::sync::{Mutex, MutexGuard};
