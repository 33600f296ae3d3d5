//! The observer of ended attempts.

use std::fmt;
use std::sync::Arc;

use crate::graph::Graph;
use crate::model::workflow_state::Job;
use crate::model::{JobIndex, LeaseEnd, Timestamp, WorkflowId};

/// Callback for each attempt that ended. The server that wrote the end calls it after the write. It
/// must be fast. Clones share the callback.
#[derive(Clone)]
pub struct AttemptObserver(Arc<dyn Fn(&AttemptEnd<'_>) + Send + Sync>);

/// An attempt that ended.
#[derive(Debug, Clone, Copy)]
pub struct AttemptEnd<'a> {
    /// Workflow of the job.
    pub workflow: WorkflowId,
    /// Graph of the workflow.
    pub graph: &'a Graph,
    /// Job in the graph.
    pub job: JobIndex,
    /// State of the job during the attempt.
    pub during: &'a Job,
    /// Time of the end.
    pub at: Timestamp,
    /// Outcome of the attempt.
    pub outcome: AttemptOutcome<'a>,
}

/// Outcome of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptOutcome<'a> {
    /// The attempt succeeded.
    Succeeded,
    /// The attempt failed.
    Failed {
        /// Kind of the error.
        kind: &'a str,
        /// Its message.
        message: &'a str,
    },
    /// The worker returned the job.
    GivenBack,
    /// The worker returned the job because the service behind its rate limits refused it.
    Throttled,
    /// The process that ran it has died.
    Crashed,
    /// The lease ended without a report of the worker.
    Revoked(LeaseEnd),
}

impl AttemptObserver {
    /// The callback runs on the thread that serves the workflow.
    pub fn new(observe: impl Fn(&AttemptEnd<'_>) + Send + Sync + 'static) -> Self {
        Self(Arc::new(observe))
    }

    pub(crate) fn notify(&self, end: &AttemptEnd<'_>) {
        (self.0)(end);
    }
}

impl fmt::Debug for AttemptObserver {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Attempts").finish_non_exhaustive()
    }
}
