//! What can happen to a workflow.

use super::outcome::Outcome;
use crate::graph::definition::Retention;
use crate::graph::json::Json;
use crate::id::JobIndex;
use crate::time::Timestamp;

/// Something that happens to a workflow.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Event {
    /// It is started.
    Start,
    /// A worker takes a job.
    Claim { job: JobIndex, lease: Lease },
    /// The worker with the lease says how the attempt ended.
    Report { job: JobIndex, token: u64, outcome: Outcome },
    /// The worker with the lease needs longer.
    Extend { job: JobIndex, token: u64, expires: Timestamp },
    /// A moment has come.
    Tick,
    /// All that has not ended is cancelled.
    Cancel,
    /// No more jobs are handed out.
    Pause,
    /// Jobs are handed out again.
    Resume,
    /// What failed, was cancelled or is blocked gets another chance.
    RetryFailed,
    /// Jobs that ended run again.
    Restart { jobs: Vec<JobIndex>, scope: RestartScope },
    /// A job will not run.
    Skip(JobIndex),
    /// A job counts as succeeded.
    MarkSucceeded { job: JobIndex, output: Option<Json> },
    /// One job is cancelled.
    CancelJob(JobIndex),
    /// It is kept so long after its end, or, when it is over, from now on.
    Keep(Retention),
    /// It is removed.
    Delete(DeleteIf),
}

/// What came of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// It took place.
    Done,
    /// It had taken place before.
    Already,
}

/// A worker's right to a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lease {
    /// Random, not 0.
    pub(crate) token: u64,
    pub(crate) worker: Box<str>,
    pub(crate) expires: Timestamp,
}

/// Which jobs run again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestartScope {
    /// Only those named.
    Chosen,
    /// Also all that come after them.
    AndDescendants,
}

/// When a workflow may be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeleteIf {
    /// It is over or was never started.
    Idle,
    /// Its time has come.
    Expired,
}
