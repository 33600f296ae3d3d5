//! What a store is asked to write for one workflow, if its stored state is the expected one.

use super::rows::Row;
use crate::id::{JobIndex, WorkflowId};
use crate::time::Timestamp;

/// A guarded write set. A store applies all of it or nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The workflow.
    pub workflow: WorkflowId,
    /// What the meta that the store has now must begin with. None: the workflow must not exist.
    pub expected: Option<Vec<u8>>,
    /// Whether its state is one value, which is the meta. Where that is so, it is so for its whole life.
    pub small: bool,
    /// What to write if so.
    pub write: Write,
}

impl Change {
    /// The write that made the state that it expects, as far as it is told.
    pub(crate) fn since(&self) -> Option<Stamp> {
        match &self.write {
            Write::Put(put) => put.trail?.since,
            Write::Delete(_) => None,
        }
    }

    /// Whether the meta that a store has is the expected one.
    pub(crate) fn expects(&self, stored: Option<&[u8]>) -> bool {
        match (&self.expected, stored) {
            (Some(expected), Some(stored)) if self.small => stored.starts_with(expected),
            (expected, stored) => expected.as_deref() == stored,
        }
    }
}

/// What a change does.
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
    /// The new meta. That of a small workflow has label and jobs behind it.
    pub meta: Vec<u8>,
    /// The parts that never change. Only in the first write of a workflow, and when it is written in another format.
    pub birth: Option<CreationRecord>,
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
    /// When a sweep must look at the workflow.
    pub timer: TimerMove,
    /// When it is removed.
    pub expiry: TimerMove,
    /// When the rows of both are due with the expected state. None: it is not known.
    pub was: Option<RowTimes>,
    /// What the store may note of this write, to tell later what it changed. None: nothing.
    pub trail: Option<TrailEntry>,
    /// The label, when `jobs` are all that have ever changed: the state may be written anew. Only for a store that writes in pieces.
    pub whole: Option<Vec<u8>>,
    /// Whether ready rows may come after the state, which says so until they are there. Only for a store that writes in pieces.
    pub rows: Rows,
    /// Earlier writes whose rows are among those to add.
    pub settled: Vec<u32>,
}

/// When the rows of a workflow are due in the sets ordered by time. None: it has no row there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RowTimes {
    /// When a sweep must look at it.
    pub timer: Option<Timestamp>,
    /// When it is removed.
    pub expiry: Option<Timestamp>,
}

/// When the ready rows of a change are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rows {
    /// With the state.
    #[default]
    AtOnce,
    /// They are many, and follow the state. The workflow is due when they should be there.
    Follow,
}

/// Which write made a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// See [`crate::Meta::version`].
    pub version: u64,
    /// See [`crate::Meta::writer`].
    pub writer: u32,
}

/// The place of a write among the writes of its workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrailEntry {
    /// The write that made the expected state. None: the workflow must not exist.
    pub since: Option<Stamp>,
    /// This write.
    pub stamp: Stamp,
    /// How many jobs the workflow has.
    pub jobs: usize,
}

/// What is written once.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CreationRecord {
    /// The encoded graph.
    pub graph: Vec<u8>,
    /// The encoded label.
    pub label: Vec<u8>,
    /// A key that no other workflow of the partition may have.
    pub idempotency_key: Option<String>,
}

/// What to remove with a workflow.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Delete {
    /// Its ready rows.
    pub ready: Vec<Row>,
    /// Its index rows.
    pub index: Vec<Row>,
    /// Its key.
    pub idempotency_key: Option<String>,
}

/// Rows to remove and rows to add; no row is in both.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RowChange {
    /// Rows that are there and must go.
    pub remove: Vec<Row>,
    /// Rows to add.
    pub add: Vec<Row>,
}

/// The change of a workflow's row in a set ordered by time. There is at most one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TimerMove {
    /// It stays as it is.
    #[default]
    Unchanged,
    /// The row is written with this time.
    To(Timestamp),
    /// The row is removed.
    Away,
}

/// Names one result of a workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResultField {
    /// The output of a job: JSON text.
    Output(JobIndex),
    /// The error of an attempt, encoded. The latest ten are kept, numbered by the attempt modulo ten.
    Error(JobIndex, u8),
    /// How far a job is, encoded.
    Progress(JobIndex),
    /// Which pieces the log of a job has, and how many bytes and lines.
    Log(JobIndex),
    /// A piece of the log, numbered modulo the number of slots.
    LogPiece(JobIndex, u8),
}

/// What a store did with a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Applied {
    /// It was written.
    Done,
    /// It was not written: the stored state is not the expected one, or the workflow does not exist.
    Conflict(Option<StoredState>),
    /// It was not written: the stored state is a later one. A store that does not know what has changed since answers with
    /// [`Applied::Conflict`].
    Behind(NewerState),
    /// It was not written: the stored state is another one, too large to be told. It must be read.
    Elsewhere,
    /// It was not written: another workflow has the idempotency key.
    KeyTaken(WorkflowId),
}

/// The stored state of a workflow, still encoded.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoredState {
    /// See [`crate::Meta`].
    pub meta: Vec<u8>,
    /// The jobs that have changed since the creation, in no order.
    pub jobs: Vec<(JobIndex, Vec<u8>)>,
    /// The writers of states whose ready rows may not be there yet.
    pub owing: Vec<u32>,
}

/// What became of an expected state, still encoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewerState {
    /// The latest write that the store has noted. If another one made the meta, more has changed than is told here.
    pub stamp: Stamp,
    /// The meta now, and the jobs that have changed since the expected state.
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
