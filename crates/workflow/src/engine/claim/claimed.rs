//! The answer to a claim: leased jobs with their inputs.

use std::sync::Arc;

use bytes::Bytes;

use crate::graph::Graph;
use crate::model::{AttemptError, JobIndex, LeaseRef, Timestamp};

/// A leased job, with everything that the worker needs to run it.
#[derive(Debug, Clone)]
pub struct Claimed {
    /// The lease, which the worker names in its report.
    pub lease: LeaseRef,
    /// Time at which the lease ends unless it is extended.
    pub expires: Timestamp,
    /// Number of the attempt, from 1.
    pub attempt: u16,
    /// Fencing token: higher than those of all earlier leases of the job.
    pub fence: u64,
    /// Whether two attempts in a row were lost or crashed. The worker must run such a job alone in
    /// a new process.
    pub suspect: bool,
    /// Outputs of the parents. For a job that runs only if all parents succeed, parents without an
    /// output are left out.
    pub inputs: Vec<Input>,
    /// Parents whose output is too large for this answer. The worker must read them separately.
    pub omitted: Vec<JobIndex>,
    pub(super) graph: Arc<Graph>,
}

impl Claimed {
    /// The graph that the job is part of.
    #[must_use]
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The job in the definition.
    #[must_use]
    pub fn job(&self) -> &crate::graph::GraphJob {
        &self.graph.jobs[self.lease.job.index()]
    }
}

/// Output of a parent, or the reason why it has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Input {
    /// Parent of the job.
    pub job: JobIndex,
    /// Output as JSON text; `null` if there is none.
    pub output: Bytes,
    /// State of the parent in a word; `doomed` or `blocked` if it cannot run because of a failure.
    /// Only for a job that may run although not all of its parents have succeeded.
    pub state: Option<&'static str>,
    /// Error of the parent, if it failed.
    pub error: Option<AttemptError>,
}
