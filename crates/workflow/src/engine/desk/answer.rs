//! The answer of a desk to a request.

use std::sync::Arc;

use bytes::Bytes;

use super::undelivered::Undelivered;
use crate::graph::Graph;
use crate::id::{JobIndex, WorkflowId};
use crate::state::{JobState, Status};
use crate::time::Timestamp;

/// The answer to a request.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) status: Option<Status>,
    /// The state of the request's job now.
    pub(crate) state: Option<JobState>,
    /// Whether the same event had happened before.
    pub(crate) already: bool,
    /// The jobs that are leased to the caller now.
    pub(crate) leased: Vec<Leased>,
    /// Another workflow has the idempotency key.
    pub(crate) existing: Option<WorkflowId>,
}

/// The output of a parent.
#[derive(Debug)]
pub(crate) struct Returned {
    pub(crate) job: JobIndex,
    pub(crate) bytes: u32,
    /// None: it must be read from the store.
    pub(crate) output: Option<Bytes>,
}

/// A leased job, with those of its inputs that are in memory.
#[derive(Debug)]
pub(crate) struct Leased {
    pub(crate) job: JobIndex,
    pub(crate) token: u64,
    pub(crate) expires: Timestamp,
    pub(crate) attempt: u16,
    pub(crate) graph: Arc<Graph>,
    /// The outputs of its parents.
    pub(crate) inputs: Vec<Returned>,
    /// Gives it back if it does not reach the worker.
    pub(crate) undelivered: Undelivered,
}
