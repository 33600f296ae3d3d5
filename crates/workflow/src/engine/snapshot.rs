//! A workflow as it was at one moment, for people and programs that look at it.

use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashSet;

use super::Engine;
use super::error::EngineError;
use crate::graph::Graph;
use crate::id::{JobIndex, WorkflowId};
use crate::record::change::ResultField;
use crate::record::codec::decode;
use crate::record::format::Format;
use crate::state::{AttemptError, Job, JobState, Meta, Status};
use crate::time::Timestamp;
use crate::workflow::Workflow;
use crate::workflow::progress::Prospect;

/// The bytes of a graph from which on it takes longer than a millisecond to read.
const LARGE: usize = 128 << 10;

/// A workflow as it was at one moment.
#[derive(Debug, Clone)]
pub struct Snapshot {
    workflow: Workflow,
    /// How its store is written.
    format: Format,
    paused_queues: Vec<String>,
    /// Queues that a worker of this server waits for or recently took jobs from.
    served_queues: Vec<String>,
}

/// Why a job is not running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
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
    /// No worker is known to ask for its queue.
    NoWorker,
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
}

impl Snapshot {
    /// Its id.
    #[must_use]
    pub fn id(&self) -> WorkflowId {
        self.workflow.id
    }

    /// Its graph.
    #[must_use]
    pub fn graph(&self) -> &Arc<Graph> {
        &self.workflow.graph
    }

    /// Its state as a whole.
    #[must_use]
    pub fn meta(&self) -> &Meta {
        &self.workflow.meta
    }

    /// Its jobs, by position in the graph.
    #[must_use]
    pub fn jobs(&self) -> &[Job] {
        &self.workflow.jobs
    }

    /// The states of its jobs, by position in the graph.
    #[must_use]
    pub fn states(&self) -> Vec<JobState> {
        self.workflow.jobs.iter().map(|job| job.state).collect()
    }

    /// Whether a job cannot run because of a failure before it, and all jobs before it have ended.
    #[must_use]
    pub fn is_blocked(&self, job: JobIndex) -> bool {
        self.workflow.prospect(job) == Prospect::Blocked
    }

    /// Whether a job cannot run because of a failure before it, although not all jobs before it have ended.
    #[must_use]
    pub fn is_doomed(&self, job: JobIndex) -> bool {
        self.workflow.prospect(job) == Prospect::Doomed
    }

    /// The jobs before a job that have not ended.
    fn unfinished_before(&self, index: JobIndex) -> Vec<JobIndex> {
        let is_over = |job: JobIndex| self.jobs()[job.index()].state.is_over() || self.is_blocked(job);
        self.graph().jobs[index.index()].parents.iter().copied().filter(|&parent| !is_over(parent)).collect()
    }

    /// The jobs before a job that failed or cannot run because of a failure.
    fn lost_before(&self, index: JobIndex) -> Vec<JobIndex> {
        let is_lost = |job: JobIndex| {
            let failed = matches!(self.jobs()[job.index()].state, JobState::Failed | JobState::Cancelled);
            failed || self.workflow.prospect(job) != Prospect::Open
        };
        self.graph().jobs[index.index()].parents.iter().copied().filter(|&parent| is_lost(parent)).collect()
    }

    /// Why a job is not running. None: it is running or has ended.
    #[must_use]
    pub fn why_not_running(&self, index: JobIndex) -> Option<Reason> {
        let about = &self.graph().jobs[index.index()];
        Some(match self.jobs()[index.index()].state {
            JobState::Waiting if self.meta().status == Status::Pending => Reason::NotStarted,
            JobState::Waiting => match self.workflow.prospect(index) {
                Prospect::Open => Reason::WaitsFor(self.unfinished_before(index)),
                Prospect::Blocked => Reason::BlockedBy(self.lost_before(index)),
                Prospect::Doomed => {
                    Reason::Doomed { by: self.lost_before(index), waits_for: self.unfinished_before(index) }
                }
            },
            JobState::Scheduled { due } => Reason::Until(due),
            JobState::Ready if self.meta().status == Status::Paused => Reason::WorkflowPaused,
            JobState::Ready if self.paused_queues.contains(&about.queue) => Reason::QueuePaused,
            JobState::Ready if !self.served_queues.contains(&about.queue) => Reason::NoWorker,
            JobState::Ready => Reason::InQueue,
            _ => return None,
        })
    }

    /// Rows that a store must hold for it: ready rows and index rows. For the check of a store.
    #[must_use]
    pub fn rows(&self) -> (Vec<crate::record::rows::Row>, Vec<crate::record::rows::Row>) {
        self.workflow.rows(self.format)
    }
}

/// The names of the queues that jobs of a graph are in.
fn queues(graph: &Graph) -> Vec<String> {
    let names: HashSet<&str> = graph.jobs.iter().map(|job| job.queue.as_str()).collect();
    names.into_iter().map(str::to_owned).collect()
}

impl Engine {
    /// A workflow as the store has it now.
    ///
    /// # Errors
    /// It does not exist, or cannot be read.
    pub async fn show(&self, id: WorkflowId) -> Result<Snapshot, EngineError> {
        let stored = match self.has_partition(id) {
            true => self.store().load(&[id]).await?.pop().flatten(),
            false => None,
        };
        let stored = stored.ok_or(EngineError::NoWorkflow { workflow: id })?;
        let large = stored.graph.len() > LARGE;
        let read = move || Workflow::read(id, &stored).map(|workflow| (queues(&workflow.graph), workflow));
        let (names, workflow) = if large { self.apart(read).await? } else { read()? };
        let (paused_queues, served_queues) = self.queues().paused_and_served(&names);
        let format = self.store().format();
        Ok(Snapshot { workflow, format, paused_queues, served_queues })
    }

    /// The state of a workflow without its jobs. Reads far less than [`Engine::show`].
    ///
    /// # Errors
    /// It does not exist, or cannot be read.
    pub async fn glance(&self, id: WorkflowId) -> Result<Meta, EngineError> {
        let head = match self.has_partition(id) {
            true => self.store().heads(&[id]).await.pop().transpose()?.flatten(),
            false => None,
        };
        let head = head.ok_or(EngineError::NoWorkflow { workflow: id })?;
        Ok(decode(&head.meta, || format!("the state of workflow {id}"))?)
    }

    /// The results of jobs of a workflow, in the order of `jobs`.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn results(&self, id: WorkflowId, jobs: &[JobIndex]) -> Result<Vec<JobResult>, EngineError> {
        const ERRORS: u8 = 10;
        let fields = jobs.iter().flat_map(|&job| {
            let errors = (0..ERRORS).map(move |place| ResultField::Error(job, place));
            std::iter::once(ResultField::Output(job)).chain(errors)
        });
        let found = self.store().results(&[(id, fields.collect())]).await?.pop().unwrap_or_default();
        let each = found.chunks(1 + usize::from(ERRORS)).zip(jobs);
        each.map(|(found, job)| {
            let errors = found[1..].iter().flatten();
            let errors = errors.map(|bytes| decode(bytes, || format!("an error of job {job} of workflow {id}")));
            let mut errors: Vec<AttemptError> = errors.collect::<Result<_, _>>()?;
            errors.sort_by_key(|error| error.at);
            Ok(JobResult { output: found[0].clone(), errors })
        })
        .collect()
    }

    pub(crate) fn has_partition(&self, id: WorkflowId) -> bool {
        id.partition().0 < self.store().partitions()
    }
}
