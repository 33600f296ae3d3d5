//! Requests about one workflow.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use super::answer::Answer;
use crate::codec::lease::LeaseRef;
use crate::engine::error::EngineError;
use crate::engine::post::reply_set::ReplySender;
use crate::engine::queues::excluded_jobs::ExcludedJobs;
use crate::graph::Graph;
use crate::graph::definition::Retention;
use crate::graph::json::Json;
use crate::id::{JobIndex, WorkflowId};
use crate::state::{Status, Worker};
use crate::time::Timestamp;
use crate::transition::event::{Intent, Lease, RestartScope};
use crate::transition::outcome::Outcome;
use crate::workflow::imported::Imported;

/// What an operator can do to a workflow. Jobs are named by name.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Starts it.
    Start,
    /// Cancels all jobs that have not ended.
    Cancel,
    /// Pauses it: workers get no more of its jobs.
    Pause,
    /// Resumes it: workers get its jobs again.
    Resume,
    /// Runs jobs again that failed or were cancelled, and then the jobs that they blocked.
    RetryFailed,
    /// Runs ended jobs again.
    Restart {
        /// Their names.
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
        /// Its name.
        job: String,
        /// Its output.
        output: Option<Json>,
    },
    /// Cancels one job.
    CancelJob(String),
    /// Sets how long the workflow is kept: after its end or, if it has ended, from now on.
    Keep(Retention),
    /// Removes it, if it has ended or was never started.
    Delete,
}

/// When an action takes place. It is judged on the state that the action changes, at whatever server that state was written.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Condition {
    /// The workflow has one of these statuses. Empty: any.
    pub statuses: Vec<Status>,
    /// A retry or a restart leaves jobs alone that ended later, since they have run again: the same action can be sent twice.
    pub as_of: Option<Timestamp>,
}

/// What became of an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActionResult {
    /// The status of the workflow now.
    pub status: Status,
    /// There was nothing left to do.
    pub already: bool,
}

/// What happens to a workflow right after its creation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum StartMode {
    /// It waits to be started.
    #[default]
    Later,
    /// It starts.
    Now,
    /// It continues from the state that it had in another system.
    As(Box<Imported>),
}

impl Action {
    /// What is done to the workflow or the job, as a word.
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
        begin: StartMode,
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
        hand_over: Option<Arc<ClaimOnReport>>,
    },
    /// A lease did not reach its worker. With a higher number than `fence` it reached whoever sent the report again.
    GiveBack {
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
    Purge,
    /// Its rows are written again if a write stopped half way.
    Mend,
    /// Its idempotency key, which the store has lost, is written again.
    MendKey,
}

impl Request {
    /// The job that it is about, if any.
    pub(super) fn job(&self) -> Option<JobIndex> {
        match self {
            Self::Claim { job, .. }
            | Self::Report { job, .. }
            | Self::GiveBack { job, .. }
            | Self::Extend { job, .. } => Some(*job),
            _ => None,
        }
    }
}

/// Which of the jobs that become ready by a report go to the worker that reports.
#[derive(Debug)]
pub(crate) struct ClaimOnReport {
    pub(crate) queues: Vec<String>,
    /// What the worker can run. None: everything.
    pub(crate) handlers: Option<Vec<String>>,
    pub(crate) worker: Worker,
    pub(crate) lease: Duration,
    /// All leases that the worker reports in the same call.
    pub(crate) reported: Vec<LeaseRef>,
    /// Those that it gives back.
    pub(crate) except: ExcludedJobs,
    /// How many more jobs the worker wants.
    pub(crate) left: AtomicUsize,
}

impl ClaimOnReport {
    /// Counts one more job. Returns false when the worker wants no more.
    pub(super) fn take_one(&self) -> bool {
        self.left
            .fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1))
            .is_ok()
    }

    pub(crate) fn give_back(&self, jobs: usize) {
        self.left.fetch_add(jobs, Relaxed);
    }
}

/// A request and where to send its answer.
#[derive(Debug)]
pub(crate) struct Envelope {
    pub(crate) workflow: WorkflowId,
    pub(crate) request: Request,
    pub(crate) now: Timestamp,
    pub(crate) answer: ReplySender,
}

impl Envelope {
    pub(crate) fn answer(self, outcome: Result<Answer, EngineError>) {
        self.answer.send(outcome);
    }
}
