//! What is asked of a workflow.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tokio::sync::oneshot;

use super::answer::Answer;
use crate::engine::error::EngineError;
use crate::graph::Graph;
use crate::graph::definition::Retention;
use crate::graph::json::Json;
use crate::id::{JobIndex, WorkflowId};
use crate::time::Timestamp;
use crate::transition::event::{Lease, RestartScope};
use crate::transition::outcome::Outcome;
use crate::workflow::imported::Imported;

/// What an operator can do to a workflow. Jobs are named by name.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Starts it.
    Start,
    /// Cancels all that has not ended.
    Cancel,
    /// Hands out no more jobs.
    Pause,
    /// Hands out jobs again.
    Resume,
    /// Gives what failed, was cancelled or is blocked another chance.
    RetryFailed,
    /// Runs jobs again that ended.
    Restart {
        /// Their names.
        jobs: Vec<String>,
        /// Whether those after them run again too.
        scope: RestartScope,
    },
    /// Passes over a job: it will not run.
    SkipJob(String),
    /// Counts a job as succeeded.
    MarkSucceeded {
        /// Its name.
        job: String,
        /// What it counts as having returned.
        output: Option<Json>,
    },
    /// Cancels one job.
    CancelJob(String),
    /// Keeps the workflow so long after its end or, when it is over, from now on.
    Keep(Retention),
    /// Removes it, if it is over or was never started.
    Delete,
}

/// What becomes of a workflow right after its creation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Begin {
    /// It waits to be started.
    #[default]
    Later,
    /// It starts.
    Now,
    /// It goes on where another system left it.
    As(Box<Imported>),
}

/// What is asked of a workflow.
#[derive(Debug)]
pub(crate) enum Request {
    Create { graph: Arc<Graph>, begin: Begin, created_at: Timestamp },
    Act(Action),
    Claim { job: JobIndex, lease: Lease },
    Report { job: JobIndex, token: u64, outcome: Outcome, hand_over: Option<Arc<HandOver>> },
    Extend { job: JobIndex, token: u64, expires: Timestamp },
    Tick,
    Purge,
}

impl Request {
    /// The job in question, if it is about one.
    pub(super) fn job(&self) -> Option<JobIndex> {
        match self {
            Self::Claim { job, .. } | Self::Report { job, .. } | Self::Extend { job, .. } => Some(*job),
            _ => None,
        }
    }
}

/// Which of the jobs that become ready by a report go to the worker that reports.
#[derive(Debug)]
pub(crate) struct HandOver {
    pub(crate) queues: Vec<String>,
    pub(crate) worker: Box<str>,
    pub(crate) lease: Duration,
    /// How many more it takes.
    pub(crate) left: AtomicUsize,
}

impl HandOver {
    /// Counts one more job as taken; false when it takes no more.
    pub(super) fn take_one(&self) -> bool {
        self.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok()
    }

    pub(crate) fn give_back(&self, jobs: usize) {
        self.left.fetch_add(jobs, Relaxed);
    }
}

/// A request and who wants to know.
#[derive(Debug)]
pub(crate) struct Posted {
    pub(crate) workflow: WorkflowId,
    pub(crate) request: Request,
    pub(crate) now: Timestamp,
    pub(crate) answer: oneshot::Sender<Result<Answer, EngineError>>,
}

impl Posted {
    pub(super) fn answer(self, outcome: Result<Answer, EngineError>) {
        // When the caller has left, jobs in the answer are given back as it is dropped.
        let _left = self.answer.send(outcome);
    }
}
