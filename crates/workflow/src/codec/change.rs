//! A guarded write of one workflow: a store applies it if the stored state is the expected one.

use super::Row;
use crate::model::{Job, JobIndex, Meta, Timestamp, WorkflowId};

/// A guarded write set. A store applies all of it or nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The workflow.
    pub workflow: WorkflowId,
    /// Bytes that the stored meta must begin with. `None` if the workflow must not exist.
    pub expected: Option<Vec<u8>>,
    /// Whether the whole state is one value, the meta. This never changes during the life of a
    /// workflow.
    pub small: bool,
    /// The write to apply if the guard holds.
    pub write: Write,
}

impl Change {
    /// The write that made the expected state. `None` if that write is not known.
    pub(crate) fn base_stamp(&self) -> Option<Stamp> {
        match &self.write {
            Write::Put(put) => put.trail?.base,
            Write::Delete(_) => None,
        }
    }

    /// Whether a stored meta is the expected one.
    pub(crate) fn expects(&self, stored: Option<&[u8]>) -> bool {
        match (&self.expected, stored) {
            (Some(expected), Some(stored)) if self.small => stored.starts_with(expected),
            (expected, stored) => expected.as_deref() == stored,
        }
    }
}

/// The effect of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// Writes state and rows.
    Put(Box<Put>),
    /// Removes the workflow and everything that belongs to it.
    Delete(Box<Delete>),
}

/// The state and rows to write.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Put {
    /// The new meta. The meta of a small workflow is followed by label and jobs.
    pub meta: Vec<u8>,
    /// The parts that never change. They are written with a new workflow and when a migration
    /// changes the format.
    pub creation: Option<CreationRecord>,
    /// New states of jobs; none of a small workflow.
    pub jobs: Vec<(JobIndex, Vec<u8>)>,
    /// Outputs and errors to write.
    pub results: Vec<(ResultField, Vec<u8>)>,
    /// Outputs and errors to remove.
    pub dropped_results: Vec<ResultField>,
    /// Ready rows.
    pub ready: RowChange,
    /// Index rows.
    pub index: RowChange,
    /// The time at which a sweep must process the workflow.
    pub timer: TimerMove,
    /// The time at which the workflow is removed.
    pub expiry: TimerMove,
    /// The times of both rows with the expected state. `None` if they are not known.
    pub stored_times: Option<RowTimes>,
    /// The entry that lets the store report later which jobs this write changed. `None` if the
    /// store records nothing.
    pub trail: Option<TrailEntry>,
    /// The label, if `jobs` holds all jobs that ever changed: the state may be written anew. Only
    /// stores that write in chunks use it.
    pub rewrite_label: Option<Vec<u8>>,
    /// Whether ready rows may be written after the state. The state then lists its writer until
    /// they are written. Only stores that write in chunks use it.
    pub row_timing: RowTiming,
    /// Writers of earlier states whose missing rows this change adds.
    pub completed_row_writers: Vec<u32>,
}

/// Times of a workflow's rows in the sets ordered by time. `None` if there is no row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RowTimes {
    /// The time at which a sweep must process the workflow.
    pub timer: Option<Timestamp>,
    /// The time at which the workflow is removed.
    pub expiry: Option<Timestamp>,
}

/// The time at which the ready rows of a change are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RowTiming {
    /// With the state.
    #[default]
    WithState,
    /// After the state, because there are many. A timer makes a sweep verify them.
    AfterState,
}

/// Identifies the write that made a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// See [`crate::Meta::version`].
    pub version: u64,
    /// See [`crate::Meta::writer`].
    pub writer: u32,
}

impl Meta {
    /// The write that made this meta.
    pub(crate) fn stamp(&self) -> Stamp {
        Stamp {
            version: self.version,
            writer: self.writer,
        }
    }
}

/// The position of a write among the writes of its workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrailEntry {
    /// The write that made the expected state. `None` if the workflow must not exist.
    pub base: Option<Stamp>,
    /// This write.
    pub stamp: Stamp,
    /// Number of jobs of the workflow.
    pub job_count: usize,
}

/// Parts of a workflow that are written once.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CreationRecord {
    /// The encoded graph.
    pub graph: Vec<u8>,
    /// The encoded label.
    pub label: Vec<u8>,
    /// A key that no other workflow of the partition may have.
    pub idempotency_key: Option<String>,
}

/// The rows and keys to remove with a workflow.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Delete {
    /// Its ready rows.
    pub ready: Vec<Row>,
    /// Its index rows.
    pub index: Vec<Row>,
    /// The idempotency key of the workflow.
    pub idempotency_key: Option<String>,
}

/// Rows to remove and rows to add; no row is in both.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RowChange {
    /// Existing rows to remove.
    pub remove: Vec<Row>,
    /// Rows to add.
    pub add: Vec<Row>,
}

/// The change of a workflow's row in a set ordered by time. A workflow has at most one row in a
/// set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TimerMove {
    /// The row stays as it is.
    #[default]
    Unchanged,
    /// The row is written with this time.
    To(Timestamp),
    /// The row is removed.
    Remove,
}

/// Names one result of a workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResultField {
    /// The output of a job: JSON text.
    Output(JobIndex),
    /// The error of an attempt, encoded. The latest ten are kept, numbered by the attempt modulo
    /// ten.
    Error(JobIndex, u8),
    /// The progress of a job, encoded.
    Progress(JobIndex),
    /// The slots of a job's log that have a piece, and the number of bytes and lines.
    Log(JobIndex),
    /// A piece of the log, numbered modulo the number of slots.
    LogPiece(JobIndex, u8),
}

/// Maximum errors that are kept of a job.
const MAX_ERRORS: u16 = 10;

impl ResultField {
    /// The field of the error of a job's latest attempt, if that attempt failed.
    pub(crate) fn latest_error(index: JobIndex, job: &Job) -> Self {
        let slot = job.attempt.wrapping_add(job.lost_total) % MAX_ERRORS;
        Self::Error(index, slot as u8)
    }
}

/// The result of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Applied {
    /// The change was written.
    Done,
    /// Nothing was written: the stored state is not the expected one, or the workflow does not
    /// exist.
    Conflict(Option<StoredState>),
    /// Nothing was written: the stored state is later than the expected one. A store that does not
    /// know the changes in between returns [`Applied::Conflict`].
    Behind(NewerState),
    /// Nothing was written: the stored state differs and is too large for a reply. The caller must
    /// read it.
    MustReload,
    /// Nothing was written: another workflow has the idempotency key.
    KeyTaken(WorkflowId),
}

/// The stored state of a workflow, still encoded.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoredState {
    /// See [`crate::Meta`].
    pub meta: Vec<u8>,
    /// The jobs that have changed since the creation, in any order.
    pub jobs: Vec<(JobIndex, Vec<u8>)>,
    /// Writers of states whose ready rows may be missing.
    pub pending_row_writers: Vec<u32>,
}

/// A stored state that is later than the expected one, still encoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewerState {
    /// The latest write in the trail. If another write made the meta, `state` does not hold all
    /// changed jobs.
    pub stamp: Stamp,
    /// The current meta, and the jobs that have changed since the expected state.
    pub state: StoredState,
}

/// A stored workflow, still encoded.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stored {
    /// Its graph.
    pub graph: Vec<u8>,
    /// Its state.
    pub state: StoredState,
}
