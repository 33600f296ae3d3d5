//! A workflow as it was at one moment, for people and programs that look at it.

mod read;

use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashMap;

use super::limits::status::Full;
use super::list::Listed;
use super::post::run_blocking::LargeReadPermit;
use crate::codec::note::Progress;
use crate::graph::Graph;
use crate::id::{JobIndex, WorkflowId};
use crate::state::{AttemptError, Job, JobState, Meta, Status};
use crate::time::Timestamp;
use crate::workflow::Workflow;
use crate::workflow::reachability::Reachability;

/// A workflow as it was at one moment, or some of its jobs.
#[derive(Debug, Clone)]
pub struct Snapshot {
    shown: SnapshotSource,
    paused_queues: Vec<String>,
    /// Queues that a worker of this server waits for or recently took jobs from.
    served_queues: Vec<String>,
    /// Of a large workflow that was read as a whole.
    place: Option<LargeReadPermit>,
    /// What was found out about jobs that are ready.
    found: HashMap<JobIndex, WaitReason>,
}

/// What is known of a workflow.
#[derive(Debug, Clone)]
enum SnapshotSource {
    All(Box<Workflow>),
    /// Jobs of which none is blocked or doomed.
    Some(Box<PartialSnapshot>),
}

/// Some jobs of a workflow and the jobs before them; others count as waiting.
#[derive(Debug, Clone)]
struct PartialSnapshot {
    id: WorkflowId,
    graph: Arc<Graph>,
    meta: Meta,
    jobs: HashMap<JobIndex, Job>,
    unknown: Job,
}

/// Why a job is not running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaitReason {
    /// The workflow was not started.
    NotStarted,
    /// The workflow is paused.
    WorkflowPaused,
    /// Jobs before it have not ended.
    WaitsFor(Vec<JobIndex>),
    /// It cannot run because jobs before it failed or cannot run. It has not ended: it waits for others to end.
    Doomed {
        /// Jobs before it that failed or cannot run.
        by: Vec<JobIndex>,
        /// Jobs before it that have not ended.
        waits_for: Vec<JobIndex>,
    },
    /// It is blocked: jobs before it failed or are blocked, and all have ended. It runs if their retry succeeds.
    BlockedBy(Vec<JobIndex>),
    /// It waits for its delay or for the pause before a retry.
    Until(Timestamp),
    /// Its queue is paused.
    QueuePaused,
    /// A limit has no room for it.
    NoRoom(Box<Full>),
    /// No worker is known to ask for its queue.
    NoWorker,
    /// Workers ask for its queue, but none of them has its handler.
    NoHandler,
    /// Other jobs of its queue are first, or a worker is about to take it.
    InQueue,
}

/// The results of a job.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JobResult {
    /// Its output, as JSON text.
    pub output: Option<Bytes>,
    /// The errors of its latest attempts, the oldest first.
    pub errors: Vec<AttemptError>,
    /// How far its latest attempt was that said so.
    pub progress: Option<Progress>,
}

impl Snapshot {
    /// Whether it is one of the few large ones that are in memory to be looked at.
    #[must_use]
    pub fn is_large(&self) -> bool {
        self.place.is_some()
    }

    /// With what was found out about jobs that are ready and not paused.
    #[must_use]
    pub fn with_reasons(self, found: HashMap<JobIndex, WaitReason>) -> Self {
        Self { found, ..self }
    }

    /// The same for somebody who keeps many: others need not wait until it is dropped.
    #[must_use]
    pub fn released(self) -> Self {
        Self {
            place: None,
            ..self
        }
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> WorkflowId {
        match &self.shown {
            SnapshotSource::All(workflow) => workflow.id,
            SnapshotSource::Some(excerpt) => excerpt.id,
        }
    }

    /// Its graph.
    #[must_use]
    pub fn graph(&self) -> &Arc<Graph> {
        match &self.shown {
            SnapshotSource::All(workflow) => &workflow.graph,
            SnapshotSource::Some(excerpt) => &excerpt.graph,
        }
    }

    /// Its state as a whole.
    #[must_use]
    pub fn meta(&self) -> &Meta {
        match &self.shown {
            SnapshotSource::All(workflow) => workflow.meta(),
            SnapshotSource::Some(excerpt) => &excerpt.meta,
        }
    }

    /// Its jobs, by position in the graph. Empty when only some were read.
    #[must_use]
    pub fn jobs(&self) -> &[Job] {
        match &self.shown {
            SnapshotSource::All(workflow) => &workflow.jobs,
            SnapshotSource::Some(_) => &[],
        }
    }

    /// One of the jobs that were read.
    #[must_use]
    pub fn job(&self, job: JobIndex) -> &Job {
        match &self.shown {
            SnapshotSource::All(workflow) => workflow.job(job),
            SnapshotSource::Some(excerpt) => excerpt.jobs.get(&job).unwrap_or(&excerpt.unknown),
        }
    }

    fn prospect(&self, job: JobIndex) -> Reachability {
        match &self.shown {
            SnapshotSource::All(workflow) => workflow.prospect(job),
            SnapshotSource::Some(_) => Reachability::Open,
        }
    }

    /// The states of its jobs, by position in the graph.
    #[must_use]
    pub fn states(&self) -> Vec<JobState> {
        self.jobs().iter().map(|job| job.state).collect()
    }

    /// How many jobs cannot run because of a failure before them, and wait for no other.
    #[must_use]
    pub fn blocked(&self) -> u32 {
        let all = (0..self.jobs().len()).map(|at| JobIndex(at as u32));
        self.meta()
            .blocked()
            .unwrap_or_else(|| all.filter(|&job| self.is_blocked(job)).count() as u32)
    }

    /// Whether a job cannot run because of a failure before it, and all jobs before it have ended.
    #[must_use]
    pub fn is_blocked(&self, job: JobIndex) -> bool {
        self.prospect(job) == Reachability::Blocked
    }

    /// Whether a job cannot run because of a failure before it, although not all jobs before it have ended.
    #[must_use]
    pub fn is_doomed(&self, job: JobIndex) -> bool {
        self.prospect(job) == Reachability::Unreachable
    }

    /// The jobs before a job that have not ended.
    fn unfinished_before(&self, index: JobIndex) -> Vec<JobIndex> {
        let is_over = |job: JobIndex| self.job(job).state.is_over() || self.is_blocked(job);
        self.graph().jobs[index.index()]
            .parents
            .iter()
            .copied()
            .filter(|&parent| !is_over(parent))
            .collect()
    }

    /// The jobs before a job that failed or cannot run because of a failure.
    fn lost_before(&self, index: JobIndex) -> Vec<JobIndex> {
        let is_lost = |job: JobIndex| {
            let failed = matches!(self.job(job).state, JobState::Failed | JobState::Cancelled);
            failed || self.prospect(job) != Reachability::Open
        };
        self.graph().jobs[index.index()]
            .parents
            .iter()
            .copied()
            .filter(|&parent| is_lost(parent))
            .collect()
    }

    /// Why a job is not running. None: it is running or has ended.
    #[must_use]
    pub fn why_not_running(&self, index: JobIndex) -> Option<WaitReason> {
        let about = &self.graph().jobs[index.index()];
        Some(match self.job(index).state {
            JobState::Waiting if self.meta().status == Status::Pending => WaitReason::NotStarted,
            JobState::Waiting => match self.prospect(index) {
                Reachability::Open => WaitReason::WaitsFor(self.unfinished_before(index)),
                Reachability::Blocked => WaitReason::BlockedBy(self.lost_before(index)),
                Reachability::Unreachable => WaitReason::Doomed {
                    by: self.lost_before(index),
                    waits_for: self.unfinished_before(index),
                },
            },
            JobState::Scheduled { due } => WaitReason::Until(due),
            JobState::Ready if self.meta().status == Status::Paused => WaitReason::WorkflowPaused,
            JobState::Ready if self.paused_queues.contains(&about.queue) => WaitReason::QueuePaused,
            JobState::Ready if self.found.contains_key(&index) => self.found[&index].clone(),
            JobState::Ready if !self.served_queues.contains(&about.queue) => WaitReason::NoWorker,
            JobState::Ready => WaitReason::InQueue,
            _ => return None,
        })
    }

    /// Whether its ready rows may not all be there yet: they are many, and are written after its state. Should their writer have died, they are
    /// written when it is due.
    #[must_use]
    pub fn rows_follow(&self) -> bool {
        match &self.shown {
            SnapshotSource::All(workflow) => workflow.is_owing(),
            SnapshotSource::Some(_) => false,
        }
    }

    /// Rows that a store must hold for it: ready rows and index rows. For the check of a store. None when only some jobs were read.
    #[must_use]
    pub fn rows(&self) -> (Vec<crate::codec::rows::Row>, Vec<crate::codec::rows::Row>) {
        match &self.shown {
            SnapshotSource::All(workflow) => workflow.rows(),
            SnapshotSource::Some(_) => Default::default(),
        }
    }
}

/// What is known of a workflow without its graph and its jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkflowSummary {
    /// What lists show.
    pub listed: Listed,
    /// How many of the jobs that wait are blocked.
    pub blocked: u32,
}
