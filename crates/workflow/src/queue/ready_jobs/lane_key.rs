//! The key of a lane: the limits and the handler of its jobs.

use std::sync::Arc;

use crate::codec::ReadyRow;

/// The lane of a job in its queue.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct LaneKey {
    /// Key of the limits, empty without limits.
    pub(crate) limits: Arc<str>,
    /// Handler of the jobs, empty if the store does not record it.
    pub(crate) handler: Arc<str>,
}

impl LaneKey {
    /// The lane of a row. `None` if this version cannot read the row.
    pub(crate) fn from_row(row: &[u8]) -> Option<Self> {
        let row = ReadyRow::read(row)?;
        Some(Self {
            limits: row.limit_key.into(),
            handler: row.handler.into(),
        })
    }
}
