//! One workflow in memory: its state, what follows from it, and what of it is not written yet.

use std::sync::Arc;

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};

use crate::change::{Birth, Change, Delete, Moved, Put, ResultField, RowChange, Stored, StoredState, Write};
use crate::codec::{decode, encode};
use crate::definition::Retention;
use crate::graph::Graph;
use crate::id::{JobIndex, WorkflowId};
use crate::progress::{End, Tally, Verdict};
use crate::rows::{ReadyEntry, Row, lasting_row, ready_rows, status_rows};
use crate::state::{Counts, Job, JobState, Meta, RetentionDefaults, Status};
use crate::store::StoreError;
use crate::time::Timestamp;

/// Errors that are kept of one job.
const KEPT_ERRORS: u16 = 10;

/// One workflow in memory.
///
/// What the store holds of it is `stored` and `jobs` as they were before `unwritten`; [`Workflow::change`] is the way from
/// there to here. When that way fails, the workflow must be dropped and read again.
#[derive(Debug, Clone)]
pub(crate) struct Workflow {
    pub(crate) id: WorkflowId,
    pub(crate) graph: Arc<Graph>,
    pub(crate) meta: Meta,
    pub(crate) jobs: Vec<Job>,
    /// What the ends of its parents add up to, for each job; follows from `jobs`.
    tallies: Vec<Tally>,
    /// Jobs that wait and cannot run because of a failure; follows from `jobs`.
    blocked: Vec<bool>,
    stored: Option<(Vec<u8>, Meta)>,
    unwritten: Unwritten,
}

#[derive(Debug, Clone, Default)]
struct Unwritten {
    /// Jobs that changed, as the store has them.
    before: HashMap<JobIndex, Job>,
    results: Vec<(ResultField, Vec<u8>)>,
    dropped_results: Vec<ResultField>,
    /// Jobs that became ready.
    ready: Vec<JobIndex>,
    delete: bool,
}

/// What went wrong in an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptError {
    /// Which attempt, from 1.
    pub attempt: u16,
    /// When it ended.
    pub at: Timestamp,
    /// Who ran it.
    pub worker: Option<Box<str>>,
    /// What kind of error: a class of the worker's language, or `timeout` or `lost`.
    pub kind: String,
    /// What it says.
    pub message: String,
    /// Where it came from, if the worker says.
    pub trace: Option<String>,
}

/// The state in which a workflow comes from another system.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Imported {
    /// When it was started; None when it never was.
    pub started_at: Option<Timestamp>,
    /// When it ended, if it did.
    pub finished_at: Option<Timestamp>,
    /// When it is to be removed; None keeps it for ever.
    pub expires_at: Option<Timestamp>,
    /// Whether more jobs are started.
    pub course: Course,
    /// The jobs by their place in the graph. None of them may be running.
    pub jobs: Vec<Job>,
    /// What jobs returned, as JSON text.
    pub outputs: Vec<(JobIndex, Vec<u8>)>,
    /// What went wrong in jobs.
    pub errors: Vec<(JobIndex, AttemptError)>,
}

/// How a workflow from another system goes on here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Course {
    /// Jobs that may run become ready.
    #[default]
    GoesOn,
    /// It is paused.
    Paused,
    /// Only what is ready already runs; without that it is over, and a retry makes it go on.
    Halted,
}

impl Workflow {
    /// A workflow that is not stored yet.
    pub(crate) fn new(id: WorkflowId, graph: Arc<Graph>, now: Timestamp) -> Self {
        let mut counts = Counts::default();
        counts.0[JobState::Waiting.place()] = graph.jobs.len() as u16;
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
        let jobs = vec![Job::default(); graph.jobs.len()];
        Self::assembled(id, graph, meta, jobs, None)
    }

    /// The workflow that a store holds.
    ///
    /// # Errors
    /// What it holds cannot be read.
    pub(crate) fn read(id: WorkflowId, stored: &Stored) -> Result<Self, StoreError> {
        let mut graph: Graph = decode(&stored.graph, || format!("the graph of workflow {id}"))?;
        graph.link_children();
        Self::read_state(id, Arc::new(graph), &stored.state)
    }

    /// The workflow that a store holds, of which the graph is known.
    pub(crate) fn read_state(id: WorkflowId, graph: Arc<Graph>, state: &StoredState) -> Result<Self, StoreError> {
        let meta: Meta = decode(&state.meta, || format!("the state of workflow {id}"))?;
        let mut jobs = vec![Job::default(); graph.jobs.len()];
        for (index, bytes) in &state.jobs {
            let what = || format!("the state of job {index} of workflow {id}");
            let none = || StoreError::Corrupt { what: what(), reason: "its graph has no such job".to_owned() };
            *jobs.get_mut(index.index()).ok_or_else(none)? = decode(bytes, what)?;
        }
        let stored = Some((state.meta.clone(), meta.clone()));
        Ok(Self::assembled(id, graph, meta, jobs, stored))
    }

    fn assembled(
        id: WorkflowId,
        graph: Arc<Graph>,
        meta: Meta,
        jobs: Vec<Job>,
        stored: Option<(Vec<u8>, Meta)>,
    ) -> Self {
        let (tallies, blocked) = (vec![Tally::default(); jobs.len()], vec![false; jobs.len()]);
        let unwritten = Unwritten::default();
        let mut workflow = Self { id, graph, meta, jobs, tallies, blocked, stored, unwritten };
        // Nothing has ended in a workflow that is new, and its tallies are all zero.
        if workflow.stored.is_some() {
            workflow.reckon();
        }
        workflow
    }

    /// Goes on where another system left it.
    pub(crate) fn take_over(&mut self, imported: &Imported, defaults: RetentionDefaults, now: Timestamp) {
        for (at, job) in imported.jobs.iter().enumerate().filter(|(_, job)| **job != Job::default()) {
            let index = JobIndex(at as u16);
            self.set_state(index, job.state, now);
            let ready_at = job.ready_at.or((job.state == JobState::Ready).then_some(now));
            *self.job_mut(index) = Job { ready_at, ..job.clone() };
        }
        for (job, output) in &imported.outputs {
            self.put_output(*job, output);
        }
        for (job, error) in &imported.errors {
            self.put_error(*job, error);
        }
        self.meta.retention = Some(imported.expires_at.map_or(Retention::Forever, |at| Retention::For(at.since(now))));
        if let Some(started_at) = imported.started_at {
            self.meta.started_at = Some(started_at);
            self.meta.status = if imported.course == Course::Paused { Status::Paused } else { Status::Running };
            match imported.course {
                Course::GoesOn | Course::Paused => self.advance(now),
                Course::Halted => self.reckon(),
            }
            self.conclude(defaults, now);
        }
        if self.meta.status.is_over() {
            self.meta.finished_at = imported.finished_at.or(self.meta.finished_at);
        }
    }

    /// Whether it is stored, as far as is known here.
    pub(crate) fn is_stored(&self) -> bool {
        self.stored.is_some()
    }

    /// Whether a job waits and cannot run because of a failure.
    pub(crate) fn is_blocked(&self, job: JobIndex) -> bool {
        self.blocked[job.index()]
    }

    /// Jobs that became ready since the last write.
    pub(crate) fn newly_ready(&self) -> &[JobIndex] {
        &self.unwritten.ready
    }

    pub(crate) fn job(&self, job: JobIndex) -> &Job {
        &self.jobs[job.index()]
    }

    /// Access to a job for a change of anything but its state.
    pub(crate) fn job_mut(&mut self, index: JobIndex) -> &mut Job {
        let job = &mut self.jobs[index.index()];
        self.unwritten.before.entry(index).or_insert_with(|| job.clone());
        job
    }

    /// Gives a job another state. Jobs after it do not hear of it.
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
        self.meta.counts.change(old, state);
        if state == JobState::Ready {
            self.unwritten.ready.push(index);
        }
        if let Some(due) = self.due(index) {
            self.meta.timer = Some(self.meta.timer.map_or(due, |timer| timer.min(due)));
        }
    }

    /// Ends a job, and lets those after it run, be skipped or be blocked.
    pub(crate) fn end(&mut self, index: JobIndex, state: JobState, now: Timestamp) {
        self.set_state(index, state, now);
        let end = self.end_of(index).expect("the state given is an end");
        self.spread(vec![(index, end)], now);
    }

    /// Works out anew what follows from the states of all jobs, and lets run what may.
    pub(crate) fn advance(&mut self, now: Timestamp) {
        self.visit(|workflow, job, verdict| match verdict {
            Verdict::Run => workflow.activate(job, now),
            Verdict::Skip => workflow.set_state(job, JobState::Skipped, now),
            Verdict::Wait | Verdict::Block => {}
        });
    }

    fn each(&self) -> impl Iterator<Item = JobIndex> + use<> {
        (0..self.jobs.len()).map(|at| JobIndex(at as u16))
    }

    fn verdict(&self, job: JobIndex) -> Verdict {
        let about = &self.graph.jobs[job.index()];
        self.tallies[job.index()].verdict(about.rule, about.parents.len())
    }

    fn end_of(&self, job: JobIndex) -> Option<End> {
        match self.job(job).state {
            JobState::Succeeded => Some(End::Succeeded),
            JobState::Failed | JobState::Cancelled => Some(End::Failed),
            JobState::Skipped => Some(End::Skipped),
            JobState::Waiting if self.is_blocked(job) => Some(End::Failed),
            _ => None,
        }
    }

    /// Works out tallies and blocked jobs from the states.
    fn reckon(&mut self) {
        self.visit(|_, _, _| {});
    }

    /// Works out tallies and blocked jobs, and does `settle` with each job that waits. One pass is enough, however many are
    /// settled: a job comes after its parents.
    fn visit(&mut self, mut settle: impl FnMut(&mut Self, JobIndex, Verdict)) {
        self.tallies.fill(Tally::default());
        self.blocked.fill(false);
        let graph = Arc::clone(&self.graph);
        for job in graph.in_order() {
            if self.job(job).state == JobState::Waiting {
                let verdict = self.verdict(job);
                self.blocked[job.index()] = verdict == Verdict::Block;
                settle(self, job, verdict);
            }
            if let Some(end) = self.end_of(job) {
                graph.children(job).iter().for_each(|child| self.tallies[child.index()].add(end));
            }
        }
    }

    /// Tells the jobs after those that ended; without recursion, since a chain may be long.
    fn spread(&mut self, mut ended: Vec<(JobIndex, End)>, now: Timestamp) {
        let graph = Arc::clone(&self.graph);
        while let Some((job, end)) = ended.pop() {
            for &child in graph.children(job) {
                self.tallies[child.index()].add(end);
                if self.job(child).state != JobState::Waiting || self.is_blocked(child) {
                    continue;
                }
                match self.verdict(child) {
                    Verdict::Wait => {}
                    Verdict::Run => self.activate(child, now),
                    Verdict::Skip => {
                        self.set_state(child, JobState::Skipped, now);
                        ended.push((child, End::Skipped));
                    }
                    Verdict::Block => {
                        self.blocked[child.index()] = true;
                        ended.push((child, End::Failed));
                    }
                }
            }
        }
    }

    fn activate(&mut self, job: JobIndex, now: Timestamp) {
        let wait = self.graph.jobs[job.index()].wait;
        let state = if wait.is_zero() { JobState::Ready } else { JobState::Scheduled { due: now + wait } };
        self.set_state(job, state, now);
    }

    /// When something happens to a job by itself.
    pub(crate) fn due(&self, index: JobIndex) -> Option<Timestamp> {
        let job = self.job(index);
        match job.state {
            JobState::Scheduled { due } => Some(due),
            JobState::Running { expires } => Some(self.times_out(index).map_or(expires, |end| end.min(expires))),
            _ => None,
        }
    }

    /// When the running attempt of a job has taken too long.
    pub(crate) fn times_out(&self, index: JobIndex) -> Option<Timestamp> {
        let timeout = self.graph.jobs[index.index()].timeout?;
        Some(self.job(index).started_at? + timeout)
    }

    /// Jobs whose moment has come.
    pub(crate) fn due_by(&self, now: Timestamp) -> Vec<JobIndex> {
        self.each().filter(|&job| self.due(job).is_some_and(|due| due <= now)).collect()
    }

    /// Moves the timer to the first moment at which a job is due.
    pub(crate) fn rewind(&mut self) {
        self.meta.timer = self.each().filter_map(|job| self.due(job)).min();
    }

    /// Ends the workflow if nothing more can run, or lets it go on if something can.
    pub(crate) fn conclude(&mut self, defaults: RetentionDefaults, now: Timestamp) {
        let counts = self.meta.counts;
        let unfinished =
            [JobState::Failed, JobState::Cancelled, JobState::Waiting].iter().any(|&state| counts.number(state) > 0);
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
    pub(crate) fn set_status(&mut self, status: Status, defaults: RetentionDefaults, now: Timestamp) {
        if self.meta.status == status {
            return;
        }
        self.meta.status = status;
        if !status.is_over() {
            self.meta.finished_at = None;
            self.meta.expires_at = None;
            return;
        }
        self.meta.finished_at = Some(now);
        self.meta.timer = None;
        let default = if status == Status::Succeeded { defaults.succeeded } else { defaults.failed };
        self.meta.expires_at = match self.meta.retention.unwrap_or(default) {
            Retention::For(span) => Some(now + span),
            Retention::Forever => None,
        };
    }

    /// Keeps what a job returned.
    pub(crate) fn put_output(&mut self, job: JobIndex, output: &[u8]) {
        self.job_mut(job).has_output = true;
        self.unwritten.dropped_results.retain(|field| *field != ResultField::Output(job));
        self.unwritten.results.push((ResultField::Output(job), output.to_vec()));
    }

    /// Forgets what a job returned.
    pub(crate) fn drop_output(&mut self, job: JobIndex) {
        self.job_mut(job).has_output = false;
        self.unwritten.results.retain(|(field, _)| *field != ResultField::Output(job));
        self.unwritten.dropped_results.push(ResultField::Output(job));
    }

    /// Keeps what went wrong.
    pub(crate) fn put_error(&mut self, index: JobIndex, error: &AttemptError) {
        let job = self.job(index);
        let place = (job.attempt.wrapping_add(job.lost) % KEPT_ERRORS) as u8;
        self.unwritten.results.push((ResultField::Error(index, place), encode(error)));
    }

    /// Removes the workflow with the next write.
    pub(crate) fn delete(&mut self) {
        self.unwritten.delete = true;
    }

    /// Whether the next write removes it.
    pub(crate) fn is_deleted(&self) -> bool {
        self.unwritten.delete
    }

    /// What to write to make the store agree, or None when it does. `writer` is random.
    ///
    /// The workflow counts as written from here on: if the change is not applied, drop it.
    pub(crate) fn change(&mut self, writer: u32) -> Option<Change> {
        let unwritten = std::mem::take(&mut self.unwritten);
        let (expected, was) = match self.stored.take() {
            Some((bytes, meta)) => (Some(bytes), Some(meta)),
            None => (None, None),
        };
        if unwritten.delete {
            let before = was.as_ref().map_or(self.meta.status, |meta| meta.status);
            let delete = self.deletion(before, &unwritten);
            return Some(Change { workflow: self.id, expected, write: Write::Delete(Box::new(delete)) });
        }
        let nothing = unwritten.before.is_empty() && unwritten.results.is_empty();
        if nothing && was.as_ref() == Some(&self.meta) {
            self.stored = expected.zip(was);
            return None;
        }
        self.meta.version += 1;
        self.meta.writer = writer;
        let put = self.put(was.as_ref(), unwritten);
        self.stored = Some((put.meta.clone(), self.meta.clone()));
        Some(Change { workflow: self.id, expected, write: Write::Put(Box::new(put)) })
    }

    fn put(&self, was: Option<&Meta>, unwritten: Unwritten) -> Put {
        let changed = |before: Option<Timestamp>, after: Option<Timestamp>| match after {
            _ if before == after => Moved::Unchanged,
            Some(moment) => Moved::To(moment),
            None => Moved::Away,
        };
        let ready = self.ready_change(was, &unwritten);
        let mut jobs: Vec<JobIndex> = unwritten.before.keys().copied().collect();
        jobs.sort_unstable();
        Put {
            meta: encode(&self.meta),
            birth: was.is_none().then(|| Birth {
                graph: encode(&*self.graph),
                label: encode(&self.graph.label),
                idempotency_key: self.graph.idempotency_key.clone(),
            }),
            jobs: jobs.into_iter().map(|job| (job, encode(self.job(job)))).collect(),
            results: unwritten.results,
            dropped_results: unwritten.dropped_results,
            ready,
            index: self.index_change(was),
            timer: changed(was.and_then(|meta| meta.timer), self.meta.timer),
            expiry: changed(was.and_then(|meta| meta.expires_at), self.meta.expires_at),
        }
    }

    fn index_change(&self, was: Option<&Meta>) -> RowChange {
        let label = &self.graph.label;
        let before = was.map_or_else(Vec::new, |meta| status_rows(self.id, label, meta.status));
        if was.is_some_and(|meta| meta.status == self.meta.status) {
            return RowChange::default();
        }
        let mut add = status_rows(self.id, label, self.meta.status);
        if was.is_none() {
            add.push(lasting_row(self.id));
        }
        RowChange { remove: before, add }
    }

    fn ready_change(&self, was: Option<&Meta>, unwritten: &Unwritten) -> RowChange {
        let row = |index: JobIndex, job: &Job, status: Status| {
            Some(ReadyEntry::of(self.id, index, job, &self.graph.jobs[index.index()], status)?.row())
        };
        let status = was.map_or(Status::Pending, |meta| meta.status);
        let shown = |status| status == Status::Running;
        // A change of what is shown touches the rows of all jobs, any other only those of jobs that changed.
        let jobs: Vec<JobIndex> = match shown(status) == shown(self.meta.status) {
            true => unwritten.before.keys().copied().collect(),
            false => self.each().collect(),
        };
        let mut change = RowChange::default();
        for job in jobs {
            let before = row(job, unwritten.before.get(&job).unwrap_or_else(|| self.job(job)), status);
            let after = row(job, self.job(job), self.meta.status);
            if before != after {
                change.remove.extend(before);
                change.add.extend(after);
            }
        }
        change
    }

    fn deletion(&self, status: Status, unwritten: &Unwritten) -> Delete {
        let mut jobs = self.jobs.clone();
        for (index, job) in &unwritten.before {
            jobs[index.index()].clone_from(job);
        }
        let mut index = status_rows(self.id, &self.graph.label, status);
        index.push(lasting_row(self.id));
        Delete {
            ready: ready_rows(self.id, &self.graph, &jobs, status),
            index,
            idempotency_key: self.graph.idempotency_key.clone(),
        }
    }

    /// All rows that a store must hold for it: ready rows and index rows.
    pub(crate) fn rows(&self) -> (Vec<Row>, Vec<Row>) {
        let mut index = status_rows(self.id, &self.graph.label, self.meta.status);
        index.push(lasting_row(self.id));
        (ready_rows(self.id, &self.graph, &self.jobs, self.meta.status), index)
    }
}
