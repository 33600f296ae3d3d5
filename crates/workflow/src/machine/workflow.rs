//! A workflow in memory: its state, and facts derived from the state. `unwritten` holds the
//! contents of the next write.

mod rerun;
mod timers;

use std::collections::VecDeque;
use std::sync::Arc;

use super::{JobProgress, ParentOutcome, PendingChange, Reachability, RuleResult};
use crate::codec::{Stamp, StoreError, Stored, StoredState, decode, decode_compact};
use crate::graph::{Graph, allocation_bytes};
use crate::model::{
    Counts, Job, JobIndex, JobState, LeaseRef, Meta, Rerun, RetentionDefaults, Status, Timestamp,
    WorkflowId,
};

/// Minimum jobs of a large workflow, for which reading changes is cheaper than reading everything.
const MIN_LARGE_JOBS: usize = 256;

/// A workflow in memory.
///
/// The store has the meta `stored`, and the jobs without the changes in `unwritten`.
/// [`Workflow::change`] builds the change from there to this state. If the store does not apply it,
/// the workflow must be dropped and read again.
#[derive(Debug, Clone)]
pub(crate) struct Workflow {
    pub(crate) id: WorkflowId,
    pub(crate) graph: Arc<Graph>,
    /// The meta. It is changed by [`Workflow::meta_mut`] only.
    pub(crate) meta: Meta,
    pub(crate) jobs: Box<[Job]>,
    /// Derived facts for each job.
    pub(crate) progress: Box<[JobProgress]>,
    /// The bytes of the stored meta.
    pub(crate) stored: Option<Box<[u8]>>,
    /// Whether the store keeps the state as one value.
    pub(crate) small: bool,
    /// Changes since the latest write. `None` for most workflows, because very many wait in memory.
    pub(crate) unwritten: Option<Box<PendingChange>>,
    /// The parts that the latest change replaced, until the result of its write is known.
    pub(crate) in_flight: Option<Box<PendingChange>>,
    /// Writers of states whose ready rows may be missing.
    pub(crate) pending_row_writers: Vec<u32>,
}

impl Workflow {
    /// A workflow that is not stored yet.
    pub(crate) fn new(id: WorkflowId, graph: Arc<Graph>, now: Timestamp) -> Self {
        let mut counts = Counts::default();
        counts.0[JobState::Waiting.index()] = graph.jobs.len() as u32;
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

    /// Decodes a stored workflow.
    ///
    /// # Errors
    /// The stored bytes are invalid.
    pub(crate) fn read(id: WorkflowId, stored: &Stored) -> Result<Self, StoreError> {
        Self::read_state(id, Arc::new(Self::read_graph(id, stored)?), &stored.state)
    }

    /// Decodes the graph of a stored workflow.
    ///
    /// # Errors
    /// The stored bytes are invalid.
    pub(crate) fn read_graph(id: WorkflowId, stored: &Stored) -> Result<Graph, StoreError> {
        decode(&stored.graph, || format!("the graph of workflow {id}"))
    }

    /// Decodes a stored workflow whose graph is in memory already.
    pub(crate) fn read_state(
        id: WorkflowId,
        graph: Arc<Graph>,
        state: &StoredState,
    ) -> Result<Self, StoreError> {
        let what = || format!("the state of workflow {id}");
        let value = decode_compact(&state.meta, what)?;
        let small = value.jobs.is_some();
        let count = graph.jobs.len();
        let mut jobs = value.jobs.unwrap_or_else(|| vec![Job::default(); count]);
        if jobs.len() != count {
            let reason = format!("it has {} jobs, and its graph {count}", jobs.len());
            return Err(StoreError::corrupt(what(), reason));
        }
        read_jobs(id, &state.jobs, &mut jobs)?;
        let stored = Some(state.meta[..value.meta_bytes].into());
        Ok(Self {
            small,
            pending_row_writers: state.pending_row_writers.clone(),
            ..Self::assembled(id, graph, value.meta, jobs.into(), stored)
        })
    }

    fn assembled(
        id: WorkflowId,
        graph: Arc<Graph>,
        meta: Meta,
        jobs: Box<[Job]>,
        stored: Option<Box<[u8]>>,
    ) -> Self {
        let mut workflow = Self {
            id,
            graph,
            meta,
            progress: vec![JobProgress::default(); jobs.len()].into(),
            jobs,
            stored,
            small: false,
            unwritten: None,
            in_flight: None,
            pending_row_writers: Vec::new(),
        };
        // No job of a new workflow has ended, so all counts are zero.
        if workflow.stored.is_some() {
            workflow.recount();
        }
        workflow
    }

    /// The state without the jobs.
    pub(crate) fn meta(&self) -> &Meta {
        &self.meta
    }

    /// The state without the jobs, for a change.
    pub(crate) fn meta_mut(&mut self) -> &mut Meta {
        self.unwritten_mut();
        &mut self.meta
    }

    /// The changes since the latest write. Every change of the workflow is recorded here first.
    pub(crate) fn unwritten_mut(&mut self) -> &mut PendingChange {
        self.unwritten
            .get_or_insert_with(|| Box::new(PendingChange::since(self.meta.clone())))
    }

    /// The bytes of the stored meta. `None` if the workflow is not stored yet.
    pub(crate) fn stored_meta(&self) -> Option<&[u8]> {
        self.stored.as_deref()
    }

    /// The write that made the stored state.
    pub(crate) fn stored_stamp(&self) -> Option<Stamp> {
        let unwritten = self.unwritten.as_ref();
        let was = unwritten.map_or(&self.meta, |unwritten| &unwritten.stored_meta);
        self.is_stored().then(|| was.stamp())
    }

    /// Whether ready rows may be missing.
    pub(crate) fn may_lack_rows(&self) -> bool {
        !self.pending_row_writers.is_empty()
    }

    /// Whether reading the changes is cheaper than reading the whole workflow.
    pub(crate) fn is_large(&self) -> bool {
        self.jobs.len() >= MIN_LARGE_JOBS
    }

    /// Bytes in memory besides `size_of::<Self>()`, with worker names of typical length.
    pub(crate) fn allocated_bytes(&self) -> usize {
        /// Bytes of a worker's name.
        const WORKER_NAME_BYTES: usize = 16;
        /// Bytes of the encoded meta.
        const META_BYTES: usize = 80;
        let job = size_of::<Job>() + size_of::<JobProgress>();
        // The reference counts of an `Arc` precede the graph.
        let graph = allocation_bytes(size_of::<Graph>() + 2 * size_of::<usize>())
            + self.graph.allocated_bytes();
        META_BYTES
            + graph
            + allocation_bytes(self.jobs.len() * job)
            + self.jobs.len() * WORKER_NAME_BYTES
    }

    /// The permits of leases that ended with the change that was just written, each with the name
    /// of its concurrency limit.
    pub(crate) fn released_permits(&self) -> Vec<(String, LeaseRef)> {
        let Some(in_flight) = self.in_flight.as_ref().filter(|_| self.graph.has_limits()) else {
            return Vec::new();
        };
        let ended = |(job, was): &&(JobIndex, Job)| {
            let now = self.job(*job);
            was.state.is_running() && !(now.state.is_running() && now.token == was.token)
        };
        let places = in_flight
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
                    .permit_sets(self.id, *job)
                    .into_iter()
                    .map(move |set| (set, lease))
            });
        places.collect()
    }

    /// Whether the workflow was read from the store or written before.
    pub(crate) fn is_stored(&self) -> bool {
        self.stored.is_some()
    }

    /// Whether a waiting job may still run.
    pub(crate) fn reachability(&self, job: JobIndex) -> Reachability {
        self.progress[job.index()].reachability
    }

    /// Whether the rule of a job lets it run now.
    pub(crate) fn may_run(&self, job: JobIndex) -> bool {
        self.rule_result(job) == RuleResult::Run
    }

    pub(crate) fn job(&self, job: JobIndex) -> &Job {
        &self.jobs[job.index()]
    }

    /// A job, for a change of anything but its state.
    pub(crate) fn job_mut(&mut self, index: JobIndex) -> &mut Job {
        self.record_change(index);
        &mut self.jobs[index.index()]
    }

    /// Records the stored form of a job before its first change.
    pub(crate) fn record_change(&mut self, index: JobIndex) {
        if !std::mem::replace(&mut self.progress[index.index()].changed, true) {
            let before = self.jobs[index.index()].clone();
            let unwritten = self.unwritten_mut();
            // Most writes change one job.
            if unwritten.stored_jobs.is_empty() {
                unwritten.stored_jobs.reserve_exact(1);
            }
            unwritten.stored_jobs.push((index, before));
        }
    }

    /// Changes the state of a job, without its children.
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
        if !state.is_running() {
            job.end_lease();
        }
        self.meta.counts.move_job(old, state);
        if state == JobState::Ready {
            self.unwritten_mut().ready.push(index);
        }
        if let Some(due) = self.due(index) {
            self.meta.set_timer_by(due);
        }
    }

    /// Ends a job. Its children become ready, skipped, unreachable or blocked.
    pub(crate) fn end(&mut self, index: JobIndex, state: JobState, now: Timestamp) {
        self.set_state(index, state, now);
        let outcome = self
            .outcome_for_children(index)
            .expect("the state given is an end");
        self.notify_children((index, outcome), now);
    }

    /// Whether the derived facts follow from the states.
    #[cfg(test)]
    pub(crate) fn is_counted(&self) -> bool {
        let mut anew = self.clone();
        anew.recount();
        anew.progress == self.progress
    }

    pub(crate) fn job_indexes(&self) -> impl Iterator<Item = JobIndex> + use<> {
        self.graph.job_indexes()
    }

    pub(crate) fn rule_result(&self, job: JobIndex) -> RuleResult {
        let definition = &self.graph.jobs[job.index()];
        self.progress[job.index()]
            .parent_counts
            .apply_rule(definition.rule, definition.parents.len())
    }

    /// The outcome of a job for its children. `None` if it is still open.
    pub(crate) fn outcome_for_children(&self, job: JobIndex) -> Option<ParentOutcome> {
        match self.job(job).state {
            JobState::Succeeded => Some(ParentOutcome::Succeeded),
            JobState::Failed | JobState::Cancelled => Some(ParentOutcome::Failed),
            JobState::Skipped => Some(ParentOutcome::Skipped),
            JobState::Waiting => match self.reachability(job) {
                Reachability::Open => None,
                Reachability::Unreachable => Some(ParentOutcome::Unreachable),
                Reachability::Blocked => Some(ParentOutcome::Failed),
            },
            _ => None,
        }
    }

    /// Recomputes the derived facts from the states.
    pub(crate) fn recount(&mut self) {
        self.recount_with(|_, _| {});
    }

    /// Recomputes the derived facts. Calls `before_children` with each job before the outcome of
    /// the job reaches its children. One pass is enough, because a job comes after its parents.
    fn recount_with(&mut self, mut before_children: impl FnMut(&mut Self, JobIndex)) {
        self.progress.iter_mut().for_each(|progress| {
            *progress = JobProgress {
                changed: progress.changed,
                ..JobProgress::default()
            }
        });
        let graph = Arc::clone(&self.graph);
        for job in graph.in_order() {
            before_children(self, job);
            if self.job(job).state == JobState::Waiting {
                self.progress[job.index()].reachability = self.rule_result(job).reachability();
            }
            if let Some(outcome) = self.outcome_for_children(job) {
                graph
                    .children(job)
                    .iter()
                    .for_each(|child| self.progress[child.index()].parent_counts.add(outcome));
            }
        }
    }

    /// Passes outcomes on to children, without recursion because a chain may be long.
    fn notify_children(&mut self, first: (JobIndex, ParentOutcome), now: Timestamp) {
        let graph = Arc::clone(&self.graph);
        // In this order a child learns that a parent is unreachable before it learns that the
        // parent is blocked.
        let mut queue = VecDeque::from([first]);
        let mut rerun = Vec::new();
        while let Some((job, outcome)) = queue.pop_front() {
            for &child in graph.children(job) {
                self.progress[child.index()].parent_counts.add(outcome);
                match self.job(child).state {
                    JobState::Waiting => queue.extend(
                        self.update_waiting(child, now)
                            .map(|outcome| (child, outcome)),
                    ),
                    _ if outcome.is_failure() && self.job(child).rerun == Rerun::AfterFailure => {
                        rerun.push(child)
                    }
                    _ => {}
                }
            }
        }
        self.rerun_reacting(&rerun, now);
    }

    /// Applies the rule of a waiting job. Returns its outcome for its children, if that has
    /// changed.
    fn update_waiting(&mut self, job: JobIndex, now: Timestamp) -> Option<ParentOutcome> {
        let result = self.rule_result(job);
        let was = std::mem::replace(
            &mut self.progress[job.index()].reachability,
            result.reachability(),
        );
        match (was, result) {
            (_, RuleResult::Run) => self.activate(job, now),
            (_, RuleResult::Skip) => {
                self.set_state(job, JobState::Skipped, now);
                return Some(ParentOutcome::Skipped);
            }
            (Reachability::Open, RuleResult::Unreachable) => {
                return Some(ParentOutcome::Unreachable);
            }
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

    /// Ends the workflow if no job can run any more, or continues it if a job can.
    pub(crate) fn update_status(&mut self, defaults: RetentionDefaults, now: Timestamp) {
        let counts = self.meta.counts;
        let unfinished = [JobState::Failed, JobState::Cancelled, JobState::Waiting]
            .iter()
            .any(|&state| counts.count(state) > 0);
        match self.meta.status {
            Status::Pending => {}
            Status::Running | Status::Paused if counts.active() > 0 => {}
            _ if counts.active() > 0 => self.set_status(Status::Running, defaults, now),
            Status::Cancelled if unfinished => {}
            _ if unfinished => self.set_status(Status::Failed, defaults, now),
            _ => self.set_status(Status::Succeeded, defaults, now),
        }
    }

    /// Changes the status of the workflow.
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
        meta.expires_at = meta.retention.unwrap_or(default).end(now);
    }
}

/// Decodes the stored jobs of a workflow into `jobs`.
fn read_jobs(
    id: WorkflowId,
    stored: &[(JobIndex, Vec<u8>)],
    jobs: &mut [Job],
) -> Result<(), StoreError> {
    for (index, bytes) in stored {
        let what = || format!("the state of job {index} of workflow {id}");
        let Some(job) = jobs.get_mut(index.index()) else {
            return Err(StoreError::corrupt(what(), "its graph has no such job"));
        };
        *job = decode(bytes, what)?;
    }
    Ok(())
}
