//! The events of a workflow.

use super::Outcome;
use crate::model::{JobIndex, Json, Retention, Timestamp, WorkerName};

/// An event of a workflow.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Event {
    /// Start of the workflow.
    Start,
    /// A worker claims a job.
    Claim { job: JobIndex, lease: Lease },
    /// The worker with the lease reports the end of the attempt.
    Report {
        job: JobIndex,
        token: u64,
        outcome: Outcome,
    },
    /// The lease did not reach its worker.
    ReturnUndelivered { job: JobIndex, token: u64 },
    /// The worker with the lease needs more time.
    Extend {
        job: JobIndex,
        token: u64,
        expires: Timestamp,
        intent: Intent,
    },
    /// Time has passed: all due work is handled. Workers could reach a server and the store without
    /// a gap since `served_since`.
    Tick { served_since: Timestamp },
    /// All jobs that have not ended are cancelled.
    Cancel,
    /// The workflow is paused: workers get no more of its jobs.
    Pause,
    /// The workflow is resumed: workers get its jobs again.
    Resume,
    /// Failed and cancelled jobs run again, and then the jobs that they blocked. With `as_of`, only
    /// jobs that ended by then.
    RetryFailed { as_of: Option<Timestamp> },
    /// One failed or cancelled job runs again. With `as_of`, only if it ended by then.
    RetryJob {
        job: JobIndex,
        as_of: Option<Timestamp>,
    },
    /// Ended jobs run again. With `as_of`, only jobs that ended by then, and their descendants.
    Restart {
        jobs: Vec<JobIndex>,
        scope: RestartScope,
        as_of: Option<Timestamp>,
    },
    /// A job is skipped.
    Skip(JobIndex),
    /// A job is marked as succeeded.
    MarkSucceeded { job: JobIndex, output: Option<Json> },
    /// One job is cancelled.
    CancelJob(JobIndex),
    /// The retention is changed: from the end of the workflow or, if it has ended, from now on.
    SetRetention(Retention),
    /// The workflow is removed.
    Delete(DeleteIf),
}

/// The outcome of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The event was applied.
    Done,
    /// The event had been applied before.
    Already,
}

/// The right of a worker to run a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lease {
    /// A random number other than 0.
    pub(crate) token: u64,
    pub(crate) worker: WorkerName,
    pub(crate) expires: Timestamp,
}

/// The intent of a worker that extends a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intent {
    /// The worker continues the job.
    Continue,
    /// The worker stops: if its lease ends without a report, the job counts as returned.
    Stop,
}

/// The jobs that run again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestartScope {
    /// Only the named jobs.
    Chosen,
    /// The named jobs and all their descendants.
    AndDescendants,
}

/// The condition for removing a workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeleteIf {
    /// The workflow has ended or was never started.
    Idle,
    /// The retention of the workflow is over.
    Expired,
}
