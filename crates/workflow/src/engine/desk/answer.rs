//! What came of a request to a desk.

use std::sync::Arc;

use bytes::Bytes;

use super::undelivered::Undelivered;
use crate::graph::Graph;
use crate::id::{JobIndex, WorkflowId};
use crate::state::{JobState, Status};
use crate::time::Timestamp;

/// What came of a request.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) status: Option<Status>,
    /// What the job in question is doing now.
    pub(crate) state: Option<JobState>,
    /// It had taken place before.
    pub(crate) already: bool,
    /// Jobs that the caller has now.
    pub(crate) leased: Vec<Leased>,
    /// Another workflow has the idempotency key.
    pub(crate) existing: Option<WorkflowId>,
}

/// What a parent returned.
#[derive(Debug)]
pub(crate) struct Returned {
    pub(crate) job: JobIndex,
    pub(crate) bytes: u32,
    /// None where it must be read.
    pub(crate) output: Option<Bytes>,
}

/// A job on lease, with what of its inputs is in memory.
#[derive(Debug)]
pub(crate) struct Leased {
    pub(crate) job: JobIndex,
    pub(crate) token: u64,
    pub(crate) expires: Timestamp,
    pub(crate) attempt: u16,
    pub(crate) graph: Arc<Graph>,
    /// What parents returned.
    pub(crate) inputs: Vec<Returned>,
    /// Gives it back if it does not reach the worker.
    pub(crate) undelivered: Undelivered,
}
