//! The events of a workflow.

use super::outcome::Outcome;
use crate::graph::definition::Retention;
use crate::graph::json::Json;
use crate::id::JobIndex;
use crate::state::Worker;
use crate::time::Timestamp;

/// An event of a workflow.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Event {
    /// It is started.
    Start,
    /// A worker takes a job.
    Claim { job: JobIndex, lease: Lease },
    /// The worker with the lease reports how the attempt ended.
    Report {
        job: JobIndex,
        token: u64,
        outcome: Outcome,
    },
    /// The lease did not reach its worker.
    GiveBack { job: JobIndex, token: u64 },
    /// The worker with the lease needs more time.
    Extend {
        job: JobIndex,
        token: u64,
        expires: Timestamp,
        intent: Intent,
    },
    /// Time has passed: handles everything that is due. Servers and store were there for workers
    /// without a gap since `served_since`.
    Tick { served_since: Timestamp },
    /// All jobs that have not ended are cancelled.
    Cancel,
    /// It is paused: workers get no more of its jobs.
    Pause,
    /// It is resumed: workers get its jobs again.
    Resume,
    /// Jobs that failed or were cancelled run again, and then the jobs that they blocked. With
    /// `as_of`, only those that ended by then.
    RetryFailed { as_of: Option<Timestamp> },
    /// The same for one job.
    RetryJob {
        job: JobIndex,
        as_of: Option<Timestamp>,
    },
    /// Jobs that ended run again. With `as_of`, only those that ended by then, and what comes after
    /// them.
    Restart {
        jobs: Vec<JobIndex>,
        scope: RestartScope,
        as_of: Option<Timestamp>,
    },
    /// A job will not run.
    Skip(JobIndex),
    /// A job is marked as succeeded.
    MarkSucceeded { job: JobIndex, output: Option<Json> },
    /// One job is cancelled.
    CancelJob(JobIndex),
    /// The time that it is kept is changed: after its end or, if it has ended, from now on.
    Keep(Retention),
    /// It is removed.
    Delete(DeleteIf),
}

/// The outcome of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// It was applied.
    Done,
    /// It had been applied before.
    Already,
}

/// A worker's right to a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lease {
    /// Random, not 0.
    pub(crate) token: u64,
    pub(crate) worker: Worker,
    pub(crate) expires: Timestamp,
}

/// What a worker that keeps a lease is about to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intent {
    /// It goes on.
    GoOn,
    /// It stops: a lease that ends without its report counts as given back.
    Stop,
}

/// Which jobs run again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestartScope {
    /// Only the named jobs.
    Chosen,
    /// Also all jobs after them.
    AndDescendants,
}

/// When a workflow may be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeleteIf {
    /// When it has ended or was never started.
    Idle,
    /// When the time for which it is kept has passed.
    Expired,
}
