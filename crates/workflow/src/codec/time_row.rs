//! Rows of the sets ordered by time: timers and expiries.

use super::Row;
use crate::model::{Timestamp, WorkflowId};

/// A row of a set ordered by time: eight bytes of microseconds, most significant first, and the id.
#[must_use]
pub fn due_row(at: Timestamp, id: WorkflowId) -> Row {
    [at.micros().to_be_bytes().as_slice(), id.bytes()].concat()
}

/// The time and the id of a row that [`due_row`] made.
#[must_use]
pub fn read_due_row(row: &[u8]) -> Option<(Timestamp, WorkflowId)> {
    let (at, id) = row.split_first_chunk()?;
    Some((
        Timestamp::from_micros(u64::from_be_bytes(*at)),
        WorkflowId::from_bytes(id.try_into().ok()?),
    ))
}
