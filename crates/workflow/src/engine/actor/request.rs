//! Requests about one workflow.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use super::answer::Answer;
use super::reply_set::ReplySender;
use crate::engine::context::error::EngineError;
use crate::graph::Graph;
use crate::machine::{ImportedState, Intent, Lease, Outcome, RestartScope};
use crate::model::workflow_state::WorkerName;
use crate::model::{JobIndex, Json, LeaseRef, Retention, Status, Timestamp, WorkflowId};
use crate::queue::ExcludedJobs;

/// An action of an operator on a workflow. Jobs are named by name.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Starts the workflow.
    Start,
    /// Cancels all jobs that have not ended.
    Cancel,
    /// Pauses the workflow: workers get no more of its jobs.
    Pause,
    /// Resumes the workflow: workers get its jobs again.
    Resume,
    /// Runs jobs again that failed or were cancelled, and then the jobs that they blocked.
    RetryFailed,
    /// Runs ended jobs again.
    Restart {
        /// Names of the jobs.
        jobs: Vec<String>,
        /// Whether the jobs after them run again, too.
        scope: RestartScope,
    },
    /// Runs a job again that failed or was cancelled.
    RetryJob(String),
    /// Skips a job: it will not run.
    SkipJob(String),
    /// Marks a job as succeeded.
    MarkSucceeded {
        /// Name of the job.
        job: String,
        /// Output of the job.
        output: Option<Json>,
    },
    /// Cancels one job.
    CancelJob(String),
    /// Sets how long the workflow is kept: after its end or, if it has ended, from now on.
    Keep(Retention),
    /// Deletes the workflow, if it has ended or was never started.
    Delete,
}

/// Condition of an action. It is checked on the state that the action changes, whichever server
/// wrote that state.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Condition {
    /// Statuses of the workflow that allow the action. Empty if all do.
    pub statuses: Vec<Status>,
    /// A retry or a restart skips jobs that ended after this time, since they have run again. So
    /// the same action can be sent twice.
    pub as_of: Option<Timestamp>,
}

/// Result of an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActionResult {
    /// Status of the workflow now.
    pub status: Status,
    /// Whether there was nothing left to do.
    pub already_done: bool,
}

/// Start of a workflow right after its creation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum StartMode {
    /// The workflow waits to be started.
    #[default]
    Later,
    /// The workflow starts.
    Now,
    /// The workflow continues from the state that it had in another system.
    As(Box<ImportedState>),
}

impl Action {
    /// Returns a verb for the action, for messages.
    pub(super) const fn verb(&self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Cancel | Self::CancelJob(_) => "cancel",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::RetryFailed | Self::RetryJob(_) => "retry",
            Self::Restart { .. } => "restart jobs of",
            Self::SkipJob(_) => "skip",
            Self::MarkSucceeded { .. } => "mark jobs as succeeded of",
            Self::Keep(_) => "expire",
            Self::Delete => "remove",
        }
    }
}

/// A request about one workflow.
#[derive(Debug)]
pub(crate) enum Request {
    Create {
        graph: Arc<Graph>,
        start_mode: StartMode,
        created_at: Timestamp,
    },
    Act(Action, Condition),
    Claim {
        job: JobIndex,
        lease: Lease,
    },
    Report {
        job: JobIndex,
        token: u64,
        outcome: Outcome,
        claim: Option<Arc<ClaimOnReport>>,
    },
    /// Returns the job of a lease that did not reach its worker. If the job's fence is higher than
    /// `fence`, the repetition of the report has the lease, and it stays.
    ReleaseLease {
        job: JobIndex,
        token: u64,
        fence: u64,
    },
    Extend {
        job: JobIndex,
        token: u64,
        expires: Timestamp,
        intent: Intent,
    },
    Tick {
        served_since: Timestamp,
    },
    DeleteExpired,
    /// Writes the rows of the workflow again after a partial write.
    RepairRows,
    /// Writes the idempotency key of the workflow again, which the store has lost.
    RestoreKey,
}

impl Request {
    /// Returns the job that the request names, if any.
    pub(super) fn job(&self) -> Option<JobIndex> {
        match self {
            Self::Claim { job, .. }
            | Self::Report { job, .. }
            | Self::ReleaseLease { job, .. }
            | Self::Extend { job, .. } => Some(*job),
            _ => None,
        }
    }
}

/// The claim of a reporting worker on jobs that become ready by its report.
#[derive(Debug)]
pub(crate) struct ClaimOnReport {
    pub(crate) queues: Vec<String>,
    /// Handlers that the worker can run. `None` if it runs all.
    pub(crate) handlers: Option<Vec<String>>,
    pub(crate) worker: WorkerName,
    pub(crate) lease: Duration,
    /// All leases that the worker reports in the same call.
    pub(crate) reported: Vec<LeaseRef>,
    /// Jobs that the worker returns in the same call.
    pub(crate) excluded: ExcludedJobs,
    /// Number of jobs that the worker still wants.
    pub(crate) remaining: AtomicUsize,
}

impl ClaimOnReport {
    /// Reserves one more job. Returns false if the worker wants no more.
    pub(super) fn reserve_one(&self) -> bool {
        self.remaining
            .fetch_update(Relaxed, Relaxed, |remaining| remaining.checked_sub(1))
            .is_ok()
    }

    pub(crate) fn return_unused(&self, jobs: usize) {
        self.remaining.fetch_add(jobs, Relaxed);
    }
}

/// A request, and the sender of its reply.
#[derive(Debug)]
pub(crate) struct Envelope {
    pub(crate) workflow: WorkflowId,
    pub(crate) request: Request,
    pub(crate) now: Timestamp,
    pub(crate) reply: ReplySender,
}

impl Envelope {
    pub(crate) fn send_reply(self, outcome: Result<Answer, EngineError>) {
        self.reply.send(outcome);
    }
}
