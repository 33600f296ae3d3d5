//! Parameters of reads: ranges of rows, sets of rows and registers.

pub(crate) mod lane_scan;
pub(crate) mod probe;

use crate::codec::Row;
use crate::model::WorkflowId;

/// The direction in which rows are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// The newest workflows first.
    #[default]
    NewestFirst,
    /// The oldest first.
    OldestFirst,
}

/// Query of a heartbeat, besides the members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeartbeatQuery {
    /// The time of the store.
    StoreTime,
    /// The members only.
    MembersOnly,
}

/// A range of index rows: the rows that begin with `prefix` and continue with an id in `from..to`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowRange {
    /// The section of the index, see [`crate::codec::Section`].
    pub prefix: Row,
    /// The first id, inclusive. `None` begins at the first id that exists.
    pub from: Option<WorkflowId>,
    /// The last id, exclusive. `None` ends after the last id.
    pub to: Option<WorkflowId>,
}

impl RowRange {
    /// The rows of a whole section.
    #[must_use]
    pub fn section(prefix: Row) -> Self {
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

    /// The last row, exclusive. It is exact, because a row ends with its id.
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

/// The encoded meta and label of a workflow, from which lists are made.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EncodedSummary {
    /// The encoded [`crate::Meta`].
    pub meta: Vec<u8>,
    /// The encoded [`crate::Label`].
    pub label: Vec<u8>,
}

/// One of the two sets of a partition that are ordered by time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeIndex {
    /// Workflows by the time at which a sweep must process them.
    Timers,
    /// Ended workflows, by the time at which they are deleted.
    Expiries,
}

/// A set of rows of a partition that `store check` reads completely, in pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowSet {
    /// Ready rows.
    Ready,
    /// Index rows.
    Index,
    /// Timers or expiries. Their rows are made by [`crate::due_row`].
    Due(TimeIndex),
}

/// Tables of names that all servers of a store share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Register {
    /// Names of queues. The value is `paused` or empty.
    Queues,
    /// Names of workflows. The value is empty.
    Names,
}
