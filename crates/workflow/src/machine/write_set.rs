//! Builds the change that brings the stored state to the state of the workflow in memory.

use std::time::Duration;

use hashbrown::HashSet;

use super::{PendingChange, Workflow};
use crate::codec::{
    Change, CreationRecord, Delete, Format, Put, ResultField, Row, RowChange, RowTimes, RowTiming,
    TimerMove, TrailEntry, Write, encode, encode_compact, permanent_row, ready_row, ready_rows,
    status_rows,
};
use crate::model::{AttemptError, Job, JobIndex, JobState, Meta, Status, Timestamp};

/// Time after which rows that follow their state must be written; a sweep verifies them then.
const ROWS_TIMEOUT: Duration = Duration::from_secs(10);

/// Options for writing to a store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WriteOptions {
    pub(crate) format: Format,
    /// Maximum changed jobs of a change that is written in one call; larger changes are written in
    /// chunks.
    pub(crate) max_inline: usize,
}

/// The format of a small workflow's value. A migration concludes from it whether the graph is in
/// the latest format, too. So it changes only when both are written.
fn value_format(stored: Option<&[u8]>, unwritten: &PendingChange, format: Format) -> Format {
    let was = stored
        .filter(|_| !unwritten.rewrite_all)
        .and_then(|value| Format::split_mark(value).ok());
    was.map_or(format, |(was, _)| was.min(format))
}

fn timer_move(before: Option<Timestamp>, after: Option<Timestamp>) -> TimerMove {
    match after {
        _ if before == after => TimerMove::Unchanged,
        Some(moment) => TimerMove::To(moment),
        None => TimerMove::Remove,
    }
}

impl PendingChange {
    /// The outputs, and the encoded errors of attempts.
    fn take_results(&mut self, format: Format) -> Vec<(ResultField, Vec<u8>)> {
        let mut results = std::mem::take(&mut self.results);
        let errors = self.errors.iter();
        results.extend(errors.map(|(field, error)| (*field, encode(error, format))));
        results
    }
}

impl Workflow {
    /// Jobs that became ready since the last write.
    pub(crate) fn newly_ready(&self) -> &[JobIndex] {
        self.unwritten
            .as_ref()
            .map_or(&[], |unwritten| &unwritten.ready)
    }

    /// Stores the output of a job.
    pub(crate) fn put_output(&mut self, job: JobIndex, output: &[u8]) {
        self.job_mut(job).output_bytes = u32::try_from(output.len()).unwrap_or(u32::MAX);
        let unwritten = self.unwritten_mut();
        unwritten
            .dropped_results
            .retain(|field| *field != ResultField::Output(job));
        unwritten
            .results
            .push((ResultField::Output(job), output.to_vec()));
    }

    /// Removes the output of a job.
    pub(crate) fn drop_output(&mut self, job: JobIndex) {
        self.job_mut(job).output_bytes = 0;
        let unwritten = self.unwritten_mut();
        unwritten
            .results
            .retain(|(field, _)| *field != ResultField::Output(job));
        unwritten.dropped_results.push(ResultField::Output(job));
    }

    /// Stores the error of an attempt.
    pub(crate) fn put_error(&mut self, index: JobIndex, error: &AttemptError) {
        let field = self.latest_error(index);
        self.unwritten_mut().errors.push((field, error.clone()));
    }

    /// The field of the error of a job's latest attempt, if that attempt failed.
    pub(crate) fn latest_error(&self, index: JobIndex) -> ResultField {
        ResultField::latest_error(index, self.job(index))
    }

    /// Writes all rows again with the next write, because the stored ones are not known. The rows
    /// in `orphan_rows` may exist and must be removed.
    pub(crate) fn rewrite_rows(&mut self, orphan_rows: Delete) {
        self.unwritten_mut().orphan_rows = Some(orphan_rows);
    }

    /// Writes the idempotency key again with the next write, and the other parts that are written
    /// once.
    pub(crate) fn rewrite_key(&mut self) {
        self.unwritten_mut().key_is_lost = true;
    }

    /// Writes all records again with the next write, in the format of that write. `jobs` are all
    /// jobs that the store has; `errors` are its errors of attempts.
    pub(crate) fn rewrite(&mut self, jobs: &[JobIndex], errors: Vec<(ResultField, AttemptError)>) {
        jobs.iter().for_each(|&job| self.record_change(job));
        let unwritten = self.unwritten_mut();
        unwritten.rewrite_all = true;
        unwritten.errors = errors;
    }

    /// Removes the workflow with the next write.
    pub(crate) fn delete(&mut self) {
        self.unwritten_mut().delete = true;
    }

    /// Whether the next write removes the workflow.
    pub(crate) fn is_deleted(&self) -> bool {
        self.unwritten
            .as_ref()
            .is_some_and(|unwritten| unwritten.delete)
    }

    /// The change to write. `None` if there is none. `writer` is a random number.
    ///
    /// After this call the workflow counts as written. If the change is not applied, the caller
    /// must drop the workflow or [rebase](Workflow::rebase) it.
    pub(crate) fn change(
        &mut self,
        writer: u32,
        options: WriteOptions,
        now: Timestamp,
    ) -> Option<Change> {
        let stored = self.is_stored();
        let mut unwritten = match self.unwritten.take() {
            Some(unwritten) => unwritten,
            None if stored => return None,
            None => Box::new(PendingChange::since(self.meta.clone())),
        };
        for (job, _) in &unwritten.stored_jobs {
            self.progress[job.index()].changed = false;
        }
        if stored
            && !unwritten.delete
            && unwritten.has_only_meta()
            && unwritten.stored_meta == self.meta
        {
            return None;
        }
        unwritten.sort();
        Some(self.change_from(unwritten, writer, options, now))
    }

    fn change_from(
        &mut self,
        mut unwritten: Box<PendingChange>,
        writer: u32,
        options: WriteOptions,
        now: Timestamp,
    ) -> Change {
        let rewrites_all = unwritten.stored_jobs.len() > options.max_inline;
        let expected = self.stored.take().map(Vec::from);
        let was = expected.is_some().then(|| unwritten.stored_meta.clone());
        self.mark_orphan_rows(was.as_ref(), &mut unwritten, rewrites_all);
        if expected.is_none() {
            self.small = self.id.is_small();
        }
        if unwritten.delete {
            let before = was.as_ref().map_or(self.meta.status, |meta| meta.status);
            let delete = self.deletion(before, &unwritten);
            return self.as_change(expected, Write::Delete(Box::new(delete)));
        }
        self.meta.version += 1;
        self.meta.writer = writer;
        let row_timing = self.row_timing(was.as_ref(), &unwritten, options.max_inline);
        if row_timing == RowTiming::AfterState {
            self.meta.set_timer_by(now + ROWS_TIMEOUT);
        }
        let completed_row_writers = self.take_completed_row_writers(&unwritten);
        let put = Put {
            meta: self.encode_meta(expected.as_deref(), &unwritten, options.format),
            row_timing,
            completed_row_writers,
            ..self.put(was.as_ref(), &mut unwritten, options.format, rewrites_all)
        };
        self.in_flight = Some(unwritten);
        self.as_change(expected, Write::Put(Box::new(put)))
    }

    /// Takes the writers whose rows the change removes.
    fn take_completed_row_writers(&mut self, unwritten: &PendingChange) -> Vec<u32> {
        match unwritten.orphan_rows {
            Some(_) => std::mem::take(&mut self.pending_row_writers),
            None => Vec::new(),
        }
    }

    /// The change that makes this write if the stored state is the expected one.
    fn as_change(&self, expected: Option<Vec<u8>>, write: Write) -> Change {
        Change {
            workflow: self.id,
            expected,
            small: self.small,
            write,
        }
    }

    /// Marks the rows of pending writers as orphans if the new state does not list these writers:
    /// because it is written anew, or because a workflow that no longer runs has no ready rows.
    fn mark_orphan_rows(
        &self,
        was: Option<&Meta>,
        unwritten: &mut PendingChange,
        rewrites_all: bool,
    ) {
        let same_status = was.is_some_and(|was| was.status == self.meta.status);
        if (rewrites_all || !same_status) && !self.pending_row_writers.is_empty() {
            unwritten.orphan_rows.get_or_insert_default();
        }
    }

    /// Encodes the meta, with the jobs of a small workflow. Remembers its bytes, which the next
    /// change expects.
    fn encode_meta(
        &mut self,
        stored: Option<&[u8]>,
        unwritten: &PendingChange,
        format: Format,
    ) -> Vec<u8> {
        let (meta, length) = if self.small {
            let format = value_format(stored, unwritten, format);
            encode_compact(&self.meta, &self.graph.label, &self.jobs, format)
        } else {
            let meta = encode(&self.meta, format);
            let length = meta.len();
            (meta, length)
        };
        self.stored = Some(meta[..length].into());
        meta
    }

    /// Whether more than `most` rows are added, so that they follow the state.
    fn row_timing(&self, was: Option<&Meta>, unwritten: &PendingChange, most: usize) -> RowTiming {
        let status = was.map_or(Status::Pending, |meta| meta.status);
        let all = unwritten.orphan_rows.is_some() || status != self.meta.status;
        let rows = if all {
            self.meta.counts.count(JobState::Ready) as usize
        } else {
            unwritten.ready.len()
        };
        if self.meta.status == Status::Running && rows > most {
            RowTiming::AfterState
        } else {
            RowTiming::WithState
        }
    }

    /// Writes all rows again if an earlier write ended without its rows, as when its server died.
    pub(crate) fn restore_missing_rows(&mut self) {
        if !self.pending_row_writers.is_empty() {
            // The rows of all jobs as if they were ready, by the latest time at which they became
            // ready.
            let jobs: Vec<Job> = self
                .jobs
                .iter()
                .map(|job| Job {
                    state: JobState::Ready,
                    ..job.clone()
                })
                .collect();
            let ready = ready_rows(self.id, &self.graph, &jobs, Status::Running);
            self.rewrite_rows(Delete {
                ready,
                ..Delete::default()
            });
        }
    }

    fn trail_entry(&self, was: Option<&Meta>) -> TrailEntry {
        TrailEntry {
            base: was.map(Meta::stamp),
            stamp: self.meta.stamp(),
            job_count: self.jobs.len(),
        }
    }

    /// The put without the meta.
    fn put(
        &self,
        was: Option<&Meta>,
        unwritten: &mut PendingChange,
        format: Format,
        rewrites_all: bool,
    ) -> Put {
        let orphan_rows = unwritten.orphan_rows.take();
        let stored_times = was.map(|meta| RowTimes {
            timer: meta.timer,
            expiry: meta.expires_at,
        });
        let before = stored_times.unwrap_or_default();
        let mut put = Put {
            creation: self.creation_record(was, unwritten, format),
            jobs: self.encode_jobs(unwritten, format, rewrites_all),
            results: unwritten.take_results(format),
            dropped_results: std::mem::take(&mut unwritten.dropped_results),
            ready: self.ready_change(was, unwritten),
            index: self.index_change(was),
            timer: timer_move(before.timer, self.meta.timer),
            expiry: timer_move(before.expiry, self.meta.expires_at),
            stored_times,
            trail: Some(self.trail_entry(was)),
            rewrite_label: rewrites_all.then(|| encode(&self.graph.label, format)),
            ..Put::default()
        };
        if let Some(orphan_rows) = orphan_rows {
            self.write_all_rows(&mut put, orphan_rows);
        }
        put
    }

    /// The parts that are written with the first write, or again after they were lost.
    fn creation_record(
        &self,
        was: Option<&Meta>,
        unwritten: &PendingChange,
        format: Format,
    ) -> Option<CreationRecord> {
        let is_written = was.is_none() || unwritten.key_is_lost || unwritten.rewrite_all;
        is_written.then(|| CreationRecord {
            graph: encode(&*self.graph, format),
            label: encode(&self.graph.label, format),
            // A workflow that is rewritten still has its idempotency key in the store.
            idempotency_key: self
                .graph
                .idempotency_key
                .clone()
                .filter(|_| !unwritten.rewrite_all),
        })
    }

    /// The jobs that are written as separate records: changed ones, or all that differ from their
    /// initial state.
    fn encode_jobs(
        &self,
        unwritten: &PendingChange,
        format: Format,
        rewrites_all: bool,
    ) -> Vec<(JobIndex, Vec<u8>)> {
        let record = |job: JobIndex| (job, encode(self.job(job), format));
        let has_changed = |job: &JobIndex| {
            unwritten.stored_jobs(*job).is_some() || *self.job(*job) != Job::default()
        };
        if rewrites_all {
            self.job_indexes().filter(has_changed).map(record).collect()
        } else if self.small {
            Vec::new()
        } else {
            let changed = unwritten.stored_jobs.iter().map(|&(job, _)| job);
            changed.map(record).collect()
        }
    }

    /// Makes a put write all rows, whatever rows the store has.
    fn write_all_rows(&self, put: &mut Put, orphan_rows: Delete) {
        let (ready, index) = self.rows();
        let all = |change: &mut RowChange, orphan_rows: Vec<Row>, rows: HashSet<Row>| {
            let orphan_rows: HashSet<Row> = change.remove.drain(..).chain(orphan_rows).collect();
            change.remove = orphan_rows
                .into_iter()
                .filter(|row| !rows.contains(row))
                .collect();
            change.add = rows.into_iter().collect();
        };
        all(
            &mut put.ready,
            orphan_rows.ready,
            ready.into_iter().collect(),
        );
        all(
            &mut put.index,
            orphan_rows.index,
            index.into_iter().collect(),
        );
        put.timer = self.meta.timer.map_or(TimerMove::Remove, TimerMove::To);
        put.expiry = self
            .meta
            .expires_at
            .map_or(TimerMove::Remove, TimerMove::To);
    }

    fn index_change(&self, was: Option<&Meta>) -> RowChange {
        if was.is_some_and(|meta| meta.status == self.meta.status) {
            return RowChange::default();
        }
        let label = &self.graph.label;
        let before = was.map_or_else(Vec::new, |meta| status_rows(self.id, label, meta.status));
        let mut add = status_rows(self.id, label, self.meta.status);
        if was.is_none() {
            add.push(permanent_row(self.id));
        }
        RowChange {
            remove: before,
            add,
        }
    }

    fn ready_change(&self, was: Option<&Meta>, unwritten: &PendingChange) -> RowChange {
        let row = |index, job: &Job, status| ready_row(self.id, index, job, &self.graph, status);
        let status = was.map_or(Status::Pending, |meta| meta.status);
        // Pausing or resuming changes the rows of all jobs. Other changes affect only the rows of
        // changed jobs.
        let mut change = RowChange::default();
        let mut compare = |job: JobIndex, was: &Job| {
            let before = row(job, was, status);
            let after = row(job, self.job(job), self.meta.status);
            if before != after {
                change.remove.extend(before);
                change.add.extend(after);
            }
        };
        if (status == Status::Running) == (self.meta.status == Status::Running) {
            let before = unwritten.stored_jobs.iter();
            before.for_each(|(job, was)| compare(*job, was));
        } else {
            let was = |job| unwritten.stored_jobs(job).unwrap_or_else(|| self.job(job));
            self.job_indexes().for_each(|job| compare(job, was(job)));
        }
        change
    }

    fn deletion(&self, status: Status, unwritten: &PendingChange) -> Delete {
        let mut jobs = self.jobs.clone();
        for (index, job) in &unwritten.stored_jobs {
            jobs[index.index()].clone_from(job);
        }
        let mut index = status_rows(self.id, &self.graph.label, status);
        index.push(permanent_row(self.id));
        let mut ready = ready_rows(self.id, &self.graph, &jobs, status);
        if let Some(orphan_rows) = &unwritten.orphan_rows {
            ready.extend(orphan_rows.ready.iter().cloned());
            index.extend(orphan_rows.index.iter().cloned());
        }
        Delete {
            ready,
            index,
            idempotency_key: self.graph.idempotency_key.clone(),
        }
    }

    /// All ready rows and index rows that a store must have for the workflow.
    pub(crate) fn rows(&self) -> (Vec<Row>, Vec<Row>) {
        let mut index = status_rows(self.id, &self.graph.label, self.meta.status);
        index.push(permanent_row(self.id));
        (
            ready_rows(self.id, &self.graph, &self.jobs, self.meta.status),
            index,
        )
    }
}
