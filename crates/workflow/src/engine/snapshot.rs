//! A workflow as it was at one moment, for people and programs that look at it.

use std::sync::Arc;

use bytes::Bytes;
use hashbrown::{HashMap, HashSet};

use super::Engine;
use super::error::EngineError;
use super::limits::look::Full;
use super::list::{Listed, listed};
use super::post::apart::Place;
use crate::graph::Graph;
use crate::id::{JobIndex, WorkflowId};
use crate::record::change::ResultField;
use crate::record::codec::decode;
use crate::record::note::Progress;
use crate::state::{AttemptError, Job, JobState, Meta, Status};
use crate::store::error::StoreError;
use crate::store::query::Head;
use crate::time::Timestamp;
use crate::workflow::Workflow;
use crate::workflow::progress::Prospect;

/// The bytes of a graph from which on it takes longer than a millisecond to read.
const LARGE: usize = 128 << 10;

/// The most jobs before those that are shown whose states are read with them. Beyond that, all of the workflow is read.
const MOST_PARENTS: usize = 10_000;

/// A workflow as it was at one moment, or some of its jobs.
#[derive(Debug, Clone)]
pub struct Snapshot {
    shown: Shown,
    paused_queues: Vec<String>,
    /// Queues that a worker of this server waits for or recently took jobs from.
    served_queues: Vec<String>,
    /// Of a large workflow that was read as a whole.
    place: Option<Place>,
    /// What was found out about jobs that are ready.
    found: HashMap<JobIndex, Reason>,
}

/// What is known of a workflow.
#[derive(Debug, Clone)]
enum Shown {
    All(Box<Workflow>),
    /// Jobs of which none is blocked or doomed.
    Some(Box<Excerpt>),
}

/// Some jobs of a workflow and the jobs before them; others count as waiting.
#[derive(Debug, Clone)]
struct Excerpt {
    id: WorkflowId,
    graph: Arc<Graph>,
    meta: Meta,
    jobs: HashMap<JobIndex, Job>,
    unknown: Job,
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
    pub fn with_reasons(self, found: HashMap<JobIndex, Reason>) -> Self {
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
            Shown::All(workflow) => workflow.id,
            Shown::Some(excerpt) => excerpt.id,
        }
    }

    /// Its graph.
    #[must_use]
    pub fn graph(&self) -> &Arc<Graph> {
        match &self.shown {
            Shown::All(workflow) => &workflow.graph,
            Shown::Some(excerpt) => &excerpt.graph,
        }
    }

    /// Its state as a whole.
    #[must_use]
    pub fn meta(&self) -> &Meta {
        match &self.shown {
            Shown::All(workflow) => workflow.meta(),
            Shown::Some(excerpt) => &excerpt.meta,
        }
    }

    /// Its jobs, by position in the graph. Empty when only some were read.
    #[must_use]
    pub fn jobs(&self) -> &[Job] {
        match &self.shown {
            Shown::All(workflow) => &workflow.jobs,
            Shown::Some(_) => &[],
        }
    }

    /// One of the jobs that were read.
    #[must_use]
    pub fn job(&self, job: JobIndex) -> &Job {
        match &self.shown {
            Shown::All(workflow) => workflow.job(job),
            Shown::Some(excerpt) => excerpt.jobs.get(&job).unwrap_or(&excerpt.unknown),
        }
    }

    fn prospect(&self, job: JobIndex) -> Prospect {
        match &self.shown {
            Shown::All(workflow) => workflow.prospect(job),
            Shown::Some(_) => Prospect::Open,
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
        self.prospect(job) == Prospect::Blocked
    }

    /// Whether a job cannot run because of a failure before it, although not all jobs before it have ended.
    #[must_use]
    pub fn is_doomed(&self, job: JobIndex) -> bool {
        self.prospect(job) == Prospect::Doomed
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
            failed || self.prospect(job) != Prospect::Open
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
    pub fn why_not_running(&self, index: JobIndex) -> Option<Reason> {
        let about = &self.graph().jobs[index.index()];
        Some(match self.job(index).state {
            JobState::Waiting if self.meta().status == Status::Pending => Reason::NotStarted,
            JobState::Waiting => match self.prospect(index) {
                Prospect::Open => Reason::WaitsFor(self.unfinished_before(index)),
                Prospect::Blocked => Reason::BlockedBy(self.lost_before(index)),
                Prospect::Doomed => Reason::Doomed {
                    by: self.lost_before(index),
                    waits_for: self.unfinished_before(index),
                },
            },
            JobState::Scheduled { due } => Reason::Until(due),
            JobState::Ready if self.meta().status == Status::Paused => Reason::WorkflowPaused,
            JobState::Ready if self.paused_queues.contains(&about.queue) => Reason::QueuePaused,
            JobState::Ready if self.found.contains_key(&index) => self.found[&index].clone(),
            JobState::Ready if !self.served_queues.contains(&about.queue) => Reason::NoWorker,
            JobState::Ready => Reason::InQueue,
            _ => return None,
        })
    }

    /// Whether its ready rows may not all be there yet: they are many, and are written after its state. Should their writer have died, they are
    /// written when it is due.
    #[must_use]
    pub fn rows_follow(&self) -> bool {
        match &self.shown {
            Shown::All(workflow) => workflow.is_owing(),
            Shown::Some(_) => false,
        }
    }

    /// Rows that a store must hold for it: ready rows and index rows. For the check of a store. None when only some jobs were read.
    #[must_use]
    pub fn rows(&self) -> (Vec<crate::record::rows::Row>, Vec<crate::record::rows::Row>) {
        match &self.shown {
            Shown::All(workflow) => workflow.rows(),
            Shown::Some(_) => Default::default(),
        }
    }
}

/// The names of the queues that jobs of a graph are in.
fn queues(graph: &Graph) -> Vec<String> {
    let names: HashSet<&str> = graph.jobs.iter().map(|job| job.queue.as_str()).collect();
    names.into_iter().map(str::to_owned).collect()
}

/// What is known of a workflow without its graph and its jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outline {
    /// What lists show.
    pub listed: Listed,
    /// How many of the jobs that wait are blocked.
    pub blocked: u32,
}

impl Engine {
    /// A workflow as the store has it now. Of large ones, two are in memory to be looked at: this waits, before it reads anything, until
    /// others are dropped.
    ///
    /// # Errors
    /// It does not exist, or cannot be read.
    pub async fn show(&self, id: WorkflowId) -> Result<Snapshot, EngineError> {
        let place = if self.is_large(id).await? {
            Some(self.place().await)
        } else {
            None
        };
        let stored = match self.has_partition(id) {
            true => self.store().load(&[id]).await?.pop().flatten(),
            false => None,
        };
        let stored = stored.ok_or(EngineError::NoWorkflow { workflow: id })?;
        let large = stored.graph.len() > LARGE;
        // To read a large graph takes longer than all the rest, and it never changes.
        let graph = if large {
            self.core.states.graph(id)
        } else {
            None
        };
        let read = move || {
            let workflow = match graph {
                Some(graph) => Workflow::read_state(id, graph, &stored.state),
                None => Workflow::read(id, &stored),
            };
            workflow.map(|workflow| (queues(&workflow.graph), workflow))
        };
        let (names, workflow) = if large {
            self.apart(read).await?
        } else {
            read()?
        };
        if large {
            self.core.states.keep_graph(id, &workflow.graph);
        }
        Ok(Snapshot {
            place,
            ..self.snapshot(Shown::All(Box::new(workflow)), &names)
        })
    }

    /// Whether a workflow takes long to read as a whole.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn is_large(&self, id: WorkflowId) -> Result<bool, EngineError> {
        if id.is_small() || !self.has_partition(id) {
            return Ok(false);
        }
        let size = self.store().sizes(&[id]).await?.pop().unwrap_or_default();
        Ok(size > LARGE as u64)
    }

    fn snapshot(&self, shown: Shown, queues: &[String]) -> Snapshot {
        let (paused_queues, served_queues) = self.queues().paused_and_served(queues);
        Snapshot {
            shown,
            paused_queues,
            served_queues,
            place: None,
            found: HashMap::new(),
        }
    }

    /// Some jobs of a workflow as the store has them now: those that `choose` names in its graph. Where the whole state is needed to tell why
    /// they do not run, that is read.
    ///
    /// # Errors
    /// It does not exist, or cannot be read.
    pub async fn show_some(
        &self,
        id: WorkflowId,
        choose: impl FnOnce(&Graph) -> Vec<JobIndex>,
    ) -> Result<Snapshot, EngineError> {
        if id.is_small() {
            return self.show(id).await;
        }
        let none = || EngineError::NoWorkflow { workflow: id };
        let (graph, place) = self.graph(id).await?.ok_or_else(none)?;
        let chosen = choose(&graph);
        let mut wanted = chosen.clone();
        wanted.extend(
            chosen
                .iter()
                .flat_map(|job| &graph.jobs[job.index()].parents)
                .take(MOST_PARENTS + 1),
        );
        if wanted.len() > chosen.len() + MOST_PARENTS {
            drop((graph, place));
            return self.show(id).await;
        }
        let state = self.store().excerpt(id, &wanted).await?.ok_or_else(none)?;
        let meta: Meta = decode(&state.meta, || format!("the state of workflow {id}"))?;
        let mut jobs = HashMap::with_capacity(state.jobs.len());
        for (job, bytes) in &state.jobs {
            jobs.insert(
                *job,
                decode(bytes, || format!("the state of job {job} of workflow {id}"))?,
            );
        }
        let waits = |job: &JobIndex| {
            jobs.get(job)
                .is_none_or(|job: &Job| job.state == JobState::Waiting)
        };
        if meta.blocked() != Some(0) && chosen.iter().any(waits) {
            drop((graph, place));
            return self.show(id).await;
        }
        let queues: HashSet<&str> = chosen
            .iter()
            .map(|job| graph.jobs[job.index()].queue.as_str())
            .collect();
        let queues: Vec<String> = queues.into_iter().map(str::to_owned).collect();
        let unknown = Job::default();
        let shown = Shown::Some(Box::new(Excerpt {
            id,
            graph,
            meta,
            jobs,
            unknown,
        }));
        Ok(Snapshot {
            place,
            ..self.snapshot(shown, &queues)
        })
    }

    /// The graph of a workflow: from memory if it was worked on or looked at here, for a graph never changes. A large one that was not has a
    /// place.
    pub(in crate::engine) async fn graph(
        &self,
        id: WorkflowId,
    ) -> Result<Option<(Arc<Graph>, Option<Place>)>, EngineError> {
        if !self.has_partition(id) {
            return Ok(None);
        }
        if let Some(graph) = self.core.states.graph(id) {
            return Ok(Some((graph, None)));
        }
        let place = if self.is_large(id).await? {
            Some(self.place().await)
        } else {
            None
        };
        let Some(stored) = self.store().graph(id).await? else {
            return Ok(None);
        };
        let large = stored.len() > LARGE;
        let read = move || -> Result<Graph, StoreError> {
            decode(&stored, || format!("the graph of workflow {id}"))
        };
        let graph = if large {
            self.apart(read).await?
        } else {
            read()?
        };
        let graph = Arc::new(self.core.states.shapes.share(graph));
        self.core.states.keep_graph(id, &graph);
        Ok(Some((graph, place)))
    }

    /// A workflow without its graph and its jobs. All of it is read only where jobs failed and others wait.
    ///
    /// # Errors
    /// It does not exist, or cannot be read.
    pub async fn outline(&self, id: WorkflowId) -> Result<Outline, EngineError> {
        let listed = listed(id, &self.head(id).await?)?;
        if let Some(blocked) = listed.meta.blocked() {
            return Ok(Outline { listed, blocked });
        }
        let snapshot = self.show(id).await?;
        let (label, meta) = (listed.label, snapshot.meta().clone());
        Ok(Outline {
            listed: Listed {
                workflow: id,
                label,
                meta,
            },
            blocked: snapshot.blocked(),
        })
    }

    /// The state of a workflow without its jobs. Reads far less than [`Engine::show`].
    ///
    /// # Errors
    /// It does not exist, or cannot be read.
    pub async fn glance(&self, id: WorkflowId) -> Result<Meta, EngineError> {
        Ok(decode(&self.head(id).await?.meta, || {
            format!("the state of workflow {id}")
        })?)
    }

    pub(in crate::engine) async fn head(&self, id: WorkflowId) -> Result<Head, EngineError> {
        let head = match self.has_partition(id) {
            true => self.store().heads(&[id]).await.pop().transpose()?.flatten(),
            false => None,
        };
        head.ok_or(EngineError::NoWorkflow { workflow: id })
    }

    /// The results of jobs of a workflow, in the order of `jobs`.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn results(
        &self,
        id: WorkflowId,
        jobs: &[JobIndex],
    ) -> Result<Vec<JobResult>, EngineError> {
        const ERRORS: u8 = 10;
        let fields = jobs.iter().flat_map(|&job| {
            let errors = (0..ERRORS).map(move |place| ResultField::Error(job, place));
            [ResultField::Output(job), ResultField::Progress(job)]
                .into_iter()
                .chain(errors)
        });
        let found = self
            .store()
            .results(&[(id, fields.collect())])
            .await?
            .pop()
            .unwrap_or_default();
        let each = found.chunks(2 + usize::from(ERRORS)).zip(jobs);
        each.map(|(found, job)| {
            let errors = found[2..].iter().flatten();
            let errors = errors
                .map(|bytes| decode(bytes, || format!("an error of job {job} of workflow {id}")));
            let mut errors: Vec<AttemptError> = errors.collect::<Result<_, _>>()?;
            errors.sort_by_key(|error| error.at);
            let progress = found[1].as_ref();
            let progress = progress.map(|bytes| {
                decode(bytes, || {
                    format!("the progress of job {job} of workflow {id}")
                })
            });
            Ok(JobResult {
                output: found[0].clone(),
                errors,
                progress: progress.transpose()?,
            })
        })
        .collect()
    }

    pub(crate) fn has_partition(&self, id: WorkflowId) -> bool {
        id.partition().0 < self.store().partitions()
    }
}
