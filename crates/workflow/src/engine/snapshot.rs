//! A workflow at one moment, for display and checks.

pub(super) mod read;

use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashMap;

use super::ListedWorkflow;
use super::actor::run_blocking::LargeReadPermit;
use super::limits::status::ExhaustedLimit;
use crate::codec::Progress;
use crate::graph::Graph;
use crate::machine::{Reachability, Workflow};
use crate::model::workflow_state::Job;
use crate::model::{AttemptError, JobIndex, JobState, Meta, Status, Timestamp, WorkflowId};

/// A workflow at one moment, or some of its jobs.
#[derive(Debug, Clone)]
pub struct Snapshot {
    source: SnapshotSource,
    paused_queues: Vec<String>,
    /// Queues that a worker of this server waits for or recently claimed jobs from.
    served_queues: Vec<String>,
    /// The permit of a large workflow that was read as a whole.
    read_permit: Option<LargeReadPermit>,
    /// The reasons that callers found for ready jobs.
    reasons: HashMap<JobIndex, WaitReason>,
}

/// The data of a snapshot.
#[derive(Debug, Clone)]
enum SnapshotSource {
    Whole(Box<Workflow>),
    /// Some jobs, none of which is blocked or unreachable.
    Partial(Box<PartialSnapshot>),
}

/// Some jobs of a workflow and their parents; other jobs count as waiting.
#[derive(Debug, Clone)]
struct PartialSnapshot {
    id: WorkflowId,
    graph: Arc<Graph>,
    meta: Meta,
    jobs: HashMap<JobIndex, Job>,
    unknown: Job,
}

/// The reason why a job is not running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaitReason {
    /// The workflow has not been started.
    NotStarted,
    /// The workflow is paused.
    WorkflowPaused,
    /// Parents of the job have not ended.
    WaitsFor(Vec<JobIndex>),
    /// The job cannot run because parents failed or cannot run. It stays waiting until all parents
    /// have ended.
    Unreachable {
        /// Parents that failed or cannot run.
        by: Vec<JobIndex>,
        /// Parents that have not ended.
        waits_for: Vec<JobIndex>,
    },
    /// The job is blocked: parents failed or are blocked, and all have ended. It runs if their
    /// retry succeeds.
    BlockedBy(Vec<JobIndex>),
    /// The job waits for its delay or for the back-off of a retry.
    Until(Timestamp),
    /// The queue of the job is paused.
    QueuePaused,
    /// A limit denies the job.
    LimitReached(Box<ExhaustedLimit>),
    /// No worker is known to claim jobs of its queue.
    NoWorker,
    /// Workers claim jobs of its queue, but none of them has its handler.
    NoHandler,
    /// Other jobs of its queue are first, or a worker is about to claim it.
    InQueue,
}

/// Output, errors and progress of a job.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JobResult {
    /// The output as JSON text.
    pub output: Option<Bytes>,
    /// The errors of the latest attempts, oldest first.
    pub errors: Vec<AttemptError>,
    /// The progress of the latest attempt that reported any.
    pub progress: Option<Progress>,
}

impl Snapshot {
    /// Whether the snapshot holds one of the few permits for large workflows.
    #[must_use]
    pub fn is_large(&self) -> bool {
        self.read_permit.is_some()
    }

    /// Adds the reasons of ready jobs that are not paused.
    #[must_use]
    pub fn with_reasons(self, reasons: HashMap<JobIndex, WaitReason>) -> Self {
        Self { reasons, ..self }
    }

    /// Returns the permit of a large workflow early, for callers that keep many snapshots: other
    /// reads then need not wait for the drop.
    #[must_use]
    pub fn released(self) -> Self {
        Self {
            read_permit: None,
            ..self
        }
    }

    /// The id of the workflow.
    #[must_use]
    pub fn id(&self) -> WorkflowId {
        match &self.source {
            SnapshotSource::Whole(workflow) => workflow.id,
            SnapshotSource::Partial(partial) => partial.id,
        }
    }

    /// The graph of the workflow.
    #[must_use]
    pub fn graph(&self) -> &Arc<Graph> {
        match &self.source {
            SnapshotSource::Whole(workflow) => &workflow.graph,
            SnapshotSource::Partial(partial) => &partial.graph,
        }
    }

    /// The state without the jobs.
    #[must_use]
    pub fn meta(&self) -> &Meta {
        match &self.source {
            SnapshotSource::Whole(workflow) => workflow.meta(),
            SnapshotSource::Partial(partial) => &partial.meta,
        }
    }

    /// The jobs by index. Empty if only some were read.
    #[must_use]
    pub fn jobs(&self) -> &[Job] {
        match &self.source {
            SnapshotSource::Whole(workflow) => &workflow.jobs,
            SnapshotSource::Partial(_) => &[],
        }
    }

    /// A job that was read; otherwise a waiting job.
    #[must_use]
    pub fn job(&self, job: JobIndex) -> &Job {
        match &self.source {
            SnapshotSource::Whole(workflow) => workflow.job(job),
            SnapshotSource::Partial(partial) => partial.jobs.get(&job).unwrap_or(&partial.unknown),
        }
    }

    fn reachability(&self, job: JobIndex) -> Reachability {
        match &self.source {
            SnapshotSource::Whole(workflow) => workflow.reachability(job),
            SnapshotSource::Partial(_) => Reachability::Open,
        }
    }

    /// The states of the jobs by index.
    #[must_use]
    pub fn states(&self) -> Vec<JobState> {
        self.jobs().iter().map(|job| job.state).collect()
    }

    /// Number of jobs that cannot run because of a failed parent, and all of whose parents have
    /// ended.
    #[must_use]
    pub fn blocked(&self) -> u32 {
        let all = (0..self.jobs().len()).map(|at| JobIndex(at as u32));
        self.meta()
            .blocked()
            .unwrap_or_else(|| all.filter(|&job| self.is_blocked(job)).count() as u32)
    }

    /// Whether a job cannot run because of a failed parent, and all its parents have ended.
    #[must_use]
    pub fn is_blocked(&self, job: JobIndex) -> bool {
        self.reachability(job) == Reachability::Blocked
    }

    /// Whether a job cannot run because of a failed parent, although not all its parents have
    /// ended.
    #[must_use]
    pub fn is_unreachable(&self, job: JobIndex) -> bool {
        self.reachability(job) == Reachability::Unreachable
    }

    fn parents_that(&self, job: JobIndex, holds: impl Fn(JobIndex) -> bool) -> Vec<JobIndex> {
        let parents = self.graph().jobs[job.index()].parents.iter().copied();
        parents.filter(|&parent| holds(parent)).collect()
    }

    /// The parents of a job that have not ended.
    fn unfinished_before(&self, job: JobIndex) -> Vec<JobIndex> {
        self.parents_that(job, |parent| {
            !self.job(parent).state.is_over() && !self.is_blocked(parent)
        })
    }

    /// The parents of a job that failed or cannot run because of a failure.
    fn failed_before(&self, job: JobIndex) -> Vec<JobIndex> {
        self.parents_that(job, |parent| {
            let state = self.job(parent).state;
            matches!(state, JobState::Failed | JobState::Cancelled)
                || self.reachability(parent) != Reachability::Open
        })
    }

    /// The reason why a job is not running. `None` if it is running or has ended.
    #[must_use]
    pub fn why_not_running(&self, index: JobIndex) -> Option<WaitReason> {
        let definition = &self.graph().jobs[index.index()];
        Some(match self.job(index).state {
            JobState::Waiting if self.meta().status == Status::Pending => WaitReason::NotStarted,
            JobState::Waiting => match self.reachability(index) {
                Reachability::Open => WaitReason::WaitsFor(self.unfinished_before(index)),
                Reachability::Blocked => WaitReason::BlockedBy(self.failed_before(index)),
                Reachability::Unreachable => WaitReason::Unreachable {
                    by: self.failed_before(index),
                    waits_for: self.unfinished_before(index),
                },
            },
            JobState::Scheduled { due } => WaitReason::Until(due),
            JobState::Ready if self.meta().status == Status::Paused => WaitReason::WorkflowPaused,
            JobState::Ready if self.paused_queues.contains(&definition.queue) => {
                WaitReason::QueuePaused
            }
            JobState::Ready if self.reasons.contains_key(&index) => self.reasons[&index].clone(),
            JobState::Ready if !self.served_queues.contains(&definition.queue) => {
                WaitReason::NoWorker
            }
            JobState::Ready => WaitReason::InQueue,
            _ => return None,
        })
    }

    /// Whether ready rows may be missing: many rows are written after the state. If their writer
    /// has died, a sweep writes them when the timer is due.
    #[must_use]
    pub fn may_lack_ready_rows(&self) -> bool {
        match &self.source {
            SnapshotSource::Whole(workflow) => workflow.may_lack_rows(),
            SnapshotSource::Partial(_) => false,
        }
    }

    /// Ready rows and index rows that a store must hold for the workflow, for the check of a store.
    /// Empty if only some jobs were read.
    #[must_use]
    pub fn rows(&self) -> (Vec<crate::codec::Row>, Vec<crate::codec::Row>) {
        match &self.source {
            SnapshotSource::Whole(workflow) => workflow.rows(),
            SnapshotSource::Partial(_) => Default::default(),
        }
    }
}

/// A workflow without its graph and its jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkflowSummary {
    /// The workflow as lists show it.
    pub listed: ListedWorkflow,
    /// Number of blocked jobs among the waiting ones.
    pub blocked: u32,
}
