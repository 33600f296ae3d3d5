//! One workflow in memory: its state, and what follows from it. `unwritten` notes what the next
//! write must contain.

mod again;
pub(crate) mod imported;
mod pending_change;
pub(crate) mod reachability;
mod rebase;
mod timers;
pub(crate) mod write_set;

use std::collections::VecDeque;
use std::sync::Arc;

use self::reachability::{JobProgress, ParentOutcome, Reachability, RuleResult};
use crate::codec::change::{Stamp, Stored, StoredState};
use crate::codec::compact_state::{SplitValue, decode_compact};
use crate::codec::lease::LeaseRef;
use crate::codec::record::decode;
use crate::graph::definition::Retention;
use crate::graph::{Graph, allocated};
use crate::id::{JobIndex, WorkflowId};
use crate::state::{Counts, Job, JobState, Meta, Rerun, RetentionDefaults, Status};
use crate::store::error::StoreError;
use crate::time::Timestamp;
use pending_change::PendingChange;

/// The jobs from which on a workflow is large.
const LARGE: usize = 256;

/// One workflow in memory.
///
/// The store has `stored`, and `jobs` as they were before `unwritten`. [`Workflow::change`] makes
/// the change from there to this state. If the store does not apply it, the workflow must be
/// dropped and read again.
#[derive(Debug, Clone)]
pub(crate) struct Workflow {
    pub(crate) id: WorkflowId,
    pub(crate) graph: Arc<Graph>,
    /// Changed by [`Workflow::meta_mut`] only.
    meta: Meta,
    pub(crate) jobs: Box<[Job]>,
    /// What follows from `jobs`, for each of them.
    standings: Box<[JobProgress]>,
    /// The bytes of the meta that the store has.
    stored: Option<Box<[u8]>>,
    /// Whether the store has its state as one value.
    small: bool,
    /// Nothing mostly: very many workflows wait in memory.
    unwritten: Option<Box<PendingChange>>,
    /// What the latest change replaced, until it is known whether it was applied.
    written: Option<Box<PendingChange>>,
    /// The writers of states whose ready rows may not be there.
    owing: Vec<u32>,
}

impl Workflow {
    /// A workflow that is not stored yet.
    pub(crate) fn new(id: WorkflowId, graph: Arc<Graph>, now: Timestamp) -> Self {
        let mut counts = Counts::default();
        counts.0[JobState::Waiting.place()] = graph.jobs.len() as u32;
        let meta = Meta {
            version: 0,
            writer: 0,
            status: Status::Pending,
            created_at: now,
            started_at: None,
            finished_at: None,
            retention: graph.retention,
            expires_at: None,
            timer: None,
            counts,
        };
        let jobs = vec![Job::default(); graph.jobs.len()].into();
        Self::assembled(id, graph, meta, jobs, None)
    }

    /// A workflow as it was read from a store.
    ///
    /// # Errors
    /// The stored bytes cannot be read.
    pub(crate) fn read(id: WorkflowId, stored: &Stored) -> Result<Self, StoreError> {
        Self::read_state(id, Arc::new(Self::read_graph(id, stored)?), &stored.state)
    }

    /// The graph of a workflow as it was read from a store.
    ///
    /// # Errors
    /// The stored bytes cannot be read.
    pub(crate) fn read_graph(id: WorkflowId, stored: &Stored) -> Result<Graph, StoreError> {
        decode(&stored.graph, || format!("the graph of workflow {id}"))
    }

    /// A workflow as it was read from a store, when its graph is in memory already.
    pub(crate) fn read_state(
        id: WorkflowId,
        graph: Arc<Graph>,
        state: &StoredState,
    ) -> Result<Self, StoreError> {
        let what = || format!("the state of workflow {id}");
        let SplitValue { meta, length, jobs } = decode_compact(&state.meta, what)?;
        let small = jobs.is_some();
        let mut jobs: Box<[Job]> = jobs
            .unwrap_or_else(|| vec![Job::default(); graph.jobs.len()])
            .into();
        if jobs.len() != graph.jobs.len() {
            let reason = format!(
                "it has {} jobs, and its graph {}",
                jobs.len(),
                graph.jobs.len()
            );
            return Err(StoreError::Corrupt {
                what: what(),
                reason,
            });
        }
        for (index, bytes) in &state.jobs {
            let what = || format!("the state of job {index} of workflow {id}");
            let none = || StoreError::Corrupt {
                what: what(),
                reason: "its graph has no such job".to_owned(),
            };
            *jobs.get_mut(index.index()).ok_or_else(none)? = decode(bytes, what)?;
        }
        let stored = Some(state.meta[..length].into());
        let owing = state.owing.clone();
        Ok(Self {
            small,
            owing,
            ..Self::assembled(id, graph, meta, jobs, stored)
        })
    }

    fn assembled(
        id: WorkflowId,
        graph: Arc<Graph>,
        meta: Meta,
        jobs: Box<[Job]>,
        stored: Option<Box<[u8]>>,
    ) -> Self {
        let standings = vec![JobProgress::default(); jobs.len()].into();
        let unwritten = None;
        let written = None;
        let owing = Vec::new();
        let small = false;
        let mut workflow = Self {
            id,
            graph,
            meta,
            jobs,
            standings,
            stored,
            small,
            unwritten,
            written,
            owing,
        };
        // No job of a new workflow has ended, so all tallies are zero.
        if workflow.stored.is_some() {
            workflow.recount();
        }
        workflow
    }

    /// Its state without its jobs.
    pub(crate) fn meta(&self) -> &Meta {
        &self.meta
    }

    /// The same, to change it.
    pub(crate) fn meta_mut(&mut self) -> &mut Meta {
        self.unwritten();
        &mut self.meta
    }

    /// What changed since the last write. Whoever changes something says so here before.
    fn unwritten(&mut self) -> &mut PendingChange {
        self.unwritten
            .get_or_insert_with(|| Box::new(PendingChange::since(self.meta.clone())))
    }

    /// What the meta that the store has begins with; none when it is not stored yet.
    pub(crate) fn stored_meta(&self) -> Option<&[u8]> {
        self.stored.as_deref()
    }

    /// The write that made the state that the store has.
    pub(crate) fn stored_stamp(&self) -> Option<Stamp> {
        let was = self
            .unwritten
            .as_ref()
            .map_or(&self.meta, |unwritten| &unwritten.stored_meta);
        self.is_stored().then(|| was.stamp())
    }

    /// Whether its ready rows may not all be there.
    pub(crate) fn is_owing(&self) -> bool {
        !self.owing.is_empty()
    }

    /// Whether it is better to read what has changed than all of it.
    pub(crate) fn is_large(&self) -> bool {
        self.jobs.len() >= LARGE
    }

    /// What it takes in memory besides its own size, in bytes, with the names of workers of usual
    /// length.
    pub(crate) fn allocated(&self) -> usize {
        /// Of a worker.
        const NAME: usize = 16;
        /// The encoded state as a whole.
        const META: usize = 80;
        let job = size_of::<Job>() + size_of::<JobProgress>();
        // The count of references is beside the graph.
        let graph = allocated(size_of::<Graph>() + 2 * size_of::<usize>()) + self.graph.allocated();
        META + graph + allocated(self.jobs.len() * job) + self.jobs.len() * NAME
    }

    /// The places of leases that ended with the change that was just written, and the sets that
    /// they are in.
    pub(crate) fn freed(&self) -> Vec<(String, LeaseRef)> {
        let Some(written) = self.written.as_ref().filter(|_| self.graph.has_limits()) else {
            return Vec::new();
        };
        let ended = |(job, was): &&(JobIndex, Job)| {
            let now = self.job(*job);
            let runs = |job: &Job| matches!(job.state, JobState::Running { .. });
            runs(was) && !(runs(now) && now.token == was.token)
        };
        let places = written
            .stored_jobs
            .iter()
            .filter(ended)
            .flat_map(|(job, was)| {
                let lease = LeaseRef {
                    workflow: self.id,
                    job: *job,
                    token: was.token,
                };
                self.graph
                    .sets(self.id, *job)
                    .into_iter()
                    .map(move |set| (set, lease))
            });
        places.collect()
    }

    /// Whether it was read from the store or written before.
    pub(crate) fn is_stored(&self) -> bool {
        self.stored.is_some()
    }

    /// Whether a job that waits may still run.
    pub(crate) fn prospect(&self, job: JobIndex) -> Reachability {
        self.standings[job.index()].prospect
    }

    /// Whether the rule of a job lets it run now.
    pub(crate) fn may_run(&self, job: JobIndex) -> bool {
        self.verdict(job) == RuleResult::Run
    }

    pub(crate) fn job(&self, job: JobIndex) -> &Job {
        &self.jobs[job.index()]
    }

    /// A job, to change anything but its state.
    pub(crate) fn job_mut(&mut self, index: JobIndex) -> &mut Job {
        self.note(index);
        &mut self.jobs[index.index()]
    }

    /// A job is going to change.
    fn note(&mut self, index: JobIndex) {
        if !std::mem::replace(&mut self.standings[index.index()].changed, true) {
            let before = self.jobs[index.index()].clone();
            let unwritten = self.unwritten();
            // Mostly one changes.
            if unwritten.stored_jobs.is_empty() {
                unwritten.stored_jobs.reserve_exact(1);
            }
            unwritten.stored_jobs.push((index, before));
        }
    }

    /// Gives a job another state. Does not change the jobs after it.
    pub(crate) fn set_state(&mut self, index: JobIndex, state: JobState, now: Timestamp) {
        let job = self.job_mut(index);
        let old = std::mem::replace(&mut job.state, state);
        match state {
            JobState::Ready => job.ready_at = Some(now),
            _ if state.is_over() => job.finished_at = Some(now),
            _ => {}
        }
        if !state.is_over() {
            job.finished_at = None;
        }
        if !matches!(state, JobState::Running { .. }) {
            job.end_lease();
        }
        self.meta.counts.change(old, state);
        if state == JobState::Ready {
            self.unwritten().ready.push(index);
        }
        if let Some(due) = self.due(index) {
            self.meta.timer = Some(self.meta.timer.map_or(due, |timer| timer.min(due)));
        }
    }

    /// Ends a job. The jobs after it become ready, skipped, doomed or blocked.
    pub(crate) fn end(&mut self, index: JobIndex, state: JobState, now: Timestamp) {
        self.set_state(index, state, now);
        let news = self.news_of(index).expect("the state given is an end");
        self.tell_children((index, news), now);
    }

    /// Whether what it knows of the jobs after others follows from their states.
    #[cfg(test)]
    pub(crate) fn is_counted(&self) -> bool {
        let mut anew = self.clone();
        anew.recount();
        anew.standings == self.standings
    }

    fn each(&self) -> impl Iterator<Item = JobIndex> + use<> {
        (0..self.jobs.len()).map(|at| JobIndex(at as u32))
    }

    fn verdict(&self, job: JobIndex) -> RuleResult {
        let about = &self.graph.jobs[job.index()];
        self.standings[job.index()]
            .tally
            .verdict(about.rule, about.parents.len())
    }

    /// What the jobs after a job must know of it, if anything.
    fn news_of(&self, job: JobIndex) -> Option<ParentOutcome> {
        match self.job(job).state {
            JobState::Succeeded => Some(ParentOutcome::Succeeded),
            JobState::Failed | JobState::Cancelled => Some(ParentOutcome::Failed),
            JobState::Skipped => Some(ParentOutcome::Skipped),
            JobState::Waiting => match self.prospect(job) {
                Reachability::Open => None,
                Reachability::Unreachable => Some(ParentOutcome::Doomed),
                Reachability::Blocked => Some(ParentOutcome::Failed),
            },
            _ => None,
        }
    }

    /// Works out tallies and prospects from the states.
    pub(crate) fn recount(&mut self) {
        self.visit(|_, _| {});
    }

    /// Works out tallies and prospects, and does `settle` with each job before its news reaches the
    /// jobs after it. One pass is enough, however many are settled: a job comes after its parents.
    fn visit(&mut self, mut settle: impl FnMut(&mut Self, JobIndex)) {
        self.standings.iter_mut().for_each(|standing| {
            *standing = JobProgress {
                changed: standing.changed,
                ..JobProgress::default()
            }
        });
        let graph = Arc::clone(&self.graph);
        for job in graph.in_order() {
            settle(self, job);
            if self.job(job).state == JobState::Waiting {
                self.standings[job.index()].prospect = self.verdict(job).prospect();
            }
            if let Some(news) = self.news_of(job) {
                graph
                    .children(job)
                    .iter()
                    .for_each(|child| self.standings[child.index()].tally.add(news));
            }
        }
    }

    /// Tells the jobs after one of which there is news; without recursion, since a chain may be
    /// long.
    fn tell_children(&mut self, first: (JobIndex, ParentOutcome), now: Timestamp) {
        let graph = Arc::clone(&self.graph);
        // In this order nobody hears that a job is blocked before it hears that the job is doomed.
        let mut untold = VecDeque::from([first]);
        let mut again = Vec::new();
        while let Some((job, news)) = untold.pop_front() {
            for &child in graph.children(job) {
                self.standings[child.index()].tally.add(news);
                match self.job(child).state {
                    JobState::Waiting => {
                        untold.extend(self.settle(child, now).map(|news| (child, news)))
                    }
                    _ if news.is_failure() && self.job(child).rerun == Rerun::AfterFailure => {
                        again.push(child)
                    }
                    _ => {}
                }
            }
        }
        self.react_again(&again, now);
    }

    /// Does what follows for a job that waits. Returns what the jobs after it must know.
    fn settle(&mut self, job: JobIndex, now: Timestamp) -> Option<ParentOutcome> {
        let verdict = self.verdict(job);
        let was = std::mem::replace(
            &mut self.standings[job.index()].prospect,
            verdict.prospect(),
        );
        match (was, verdict) {
            (_, RuleResult::Run) => self.activate(job, now),
            (_, RuleResult::Skip) => {
                self.set_state(job, JobState::Skipped, now);
                return Some(ParentOutcome::Skipped);
            }
            (Reachability::Open, RuleResult::Unreachable) => return Some(ParentOutcome::Doomed),
            (Reachability::Open, RuleResult::Block) => return Some(ParentOutcome::Failed),
            (Reachability::Unreachable, RuleResult::Block) => return Some(ParentOutcome::Blocked),
            (_, RuleResult::Wait | RuleResult::Unreachable | RuleResult::Block) => {}
        }
        None
    }

    fn activate(&mut self, job: JobIndex, now: Timestamp) {
        let wait = self.graph.jobs[job.index()].wait;
        let state = if wait.is_zero() {
            JobState::Ready
        } else {
            JobState::Scheduled { due: now + wait }
        };
        self.set_state(job, state, now);
    }

    /// Ends the workflow if nothing more can run, or lets it go on if something can.
    pub(crate) fn update_status(&mut self, defaults: RetentionDefaults, now: Timestamp) {
        let counts = self.meta.counts;
        let unfinished = [JobState::Failed, JobState::Cancelled, JobState::Waiting]
            .iter()
            .any(|&state| counts.number(state) > 0);
        match self.meta.status {
            Status::Pending => {}
            Status::Running | Status::Paused if counts.active() > 0 => {}
            _ if counts.active() > 0 => self.set_status(Status::Running, defaults, now),
            Status::Cancelled if unfinished => {}
            _ if unfinished => self.set_status(Status::Failed, defaults, now),
            _ => self.set_status(Status::Succeeded, defaults, now),
        }
    }

    /// Gives the workflow another status.
    pub(crate) fn set_status(
        &mut self,
        status: Status,
        defaults: RetentionDefaults,
        now: Timestamp,
    ) {
        if self.meta.status == status {
            return;
        }
        let meta = self.meta_mut();
        meta.status = status;
        if !status.is_over() {
            // A retry starts a workflow that was cancelled before its start.
            meta.started_at.get_or_insert(now);
            meta.finished_at = None;
            meta.expires_at = None;
            return;
        }
        meta.finished_at = Some(now);
        meta.timer = None;
        let default = if status == Status::Succeeded {
            defaults.succeeded
        } else {
            defaults.failed
        };
        meta.expires_at = match meta.retention.unwrap_or(default) {
            Retention::For(span) => Some(now + span),
            Retention::Forever => None,
        };
    }
}
