//! What is told of attempts that ended, to whoever wants to know of each.

use std::fmt;
use std::sync::Arc;

use crate::graph::Graph;
use crate::id::{JobIndex, WorkflowId};
use crate::state::{Job, LeaseEnd};
use crate::time::Timestamp;

/// Is told of each attempt that ended, once that is written, by the server that wrote it. It must not take long. Clones are the same.
#[derive(Clone)]
pub struct Attempts(Arc<dyn Fn(&AttemptEnd<'_>) + Send + Sync>);

/// An attempt that ended.
#[derive(Debug, Clone, Copy)]
pub struct AttemptEnd<'a> {
    /// The workflow.
    pub workflow: WorkflowId,
    /// Its graph.
    pub graph: &'a Graph,
    /// The job in it.
    pub job: JobIndex,
    /// The job as it was during the attempt.
    pub during: &'a Job,
    /// When it ended.
    pub at: Timestamp,
    /// How.
    pub outcome: AttemptOutcome<'a>,
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptOutcome<'a> {
    /// It succeeded.
    Succeeded,
    /// It failed.
    Failed {
        /// Kind of the error.
        kind: &'a str,
        /// Its message.
        message: &'a str,
    },
    /// The worker gave the job back.
    GivenBack,
    /// The same, because whoever is behind its rate limits refused it.
    Throttled,
    /// The process that ran it has died.
    Crashed,
    /// The worker did not say.
    Revoked(LeaseEnd),
}

impl Attempts {
    /// `told` is called on whatever thread serves the workflow.
    pub fn new(told: impl Fn(&AttemptEnd<'_>) + Send + Sync + 'static) -> Self {
        Self(Arc::new(told))
    }

    pub(super) fn tell(&self, end: &AttemptEnd<'_>) {
        (self.0)(end);
    }
}

impl fmt::Debug for Attempts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Attempts").finish_non_exhaustive()
    }
}
