//! What a store can be asked for: spans of rows, sets and registers.

use crate::codec::rows::Row;
use crate::id::WorkflowId;

/// In which direction rows are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// The newest workflows first.
    #[default]
    NewestFirst,
    /// The oldest first.
    OldestFirst,
}

/// A range of index rows: those that begin with `prefix` and continue with an id in `from..to`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowRange {
    /// See [`crate::codec::rows::Section`].
    pub prefix: Row,
    /// The first id, inclusive. None: the first one that exists.
    pub from: Option<WorkflowId>,
    /// The end, exclusive. None: after the last id.
    pub to: Option<WorkflowId>,
}

impl RowRange {
    /// The rows of a whole section.
    #[must_use]
    pub fn of(prefix: Row) -> Self {
        Self {
            prefix,
            from: None,
            to: None,
        }
    }

    /// The first row, inclusive.
    #[must_use]
    pub fn start(&self) -> Row {
        let mut row = self.prefix.clone();
        row.extend(self.from.iter().flat_map(WorkflowId::bytes));
        row
    }

    /// The end, exclusive. This is exact, because nothing follows the id in a row.
    #[must_use]
    pub fn end(&self) -> Row {
        let mut row = self.prefix.clone();
        match &self.to {
            Some(id) => row.extend(id.bytes()),
            None => row.extend([u8::MAX; 17]),
        }
        row
    }
}

/// What a list shows of a workflow, still encoded: meta and label.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EncodedSummary {
    /// See [`crate::Meta`].
    pub meta: Vec<u8>,
    /// See [`crate::Label`].
    pub label: Vec<u8>,
}

/// Which of a partition's two sets ordered by time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeIndex {
    /// Workflows by the moment at which a sweep must look at them.
    Timers,
    /// Ended workflows, by the time at which they are removed.
    Expiries,
}

/// A set of rows of a partition, as `store check` reads it: all of it, in pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowSet {
    /// Ready rows.
    Ready,
    /// Index rows.
    Index,
    /// Timers or expiries; their rows are made by [`crate::due_row`].
    Due(TimeIndex),
}

/// Small tables that all servers of a store share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Register {
    /// Names of queues, each with `paused` or nothing as its value.
    Queues,
    /// Names of workflows, each with nothing as its value.
    Names,
}
