//! Reads the first rows of many lanes: those of a queue that come after one that is known.

use super::error::StoreError;
use super::{Store, each_of};
use crate::id::Partition;
use crate::record::rows::{Row, lane_end, lane_of, queue_end};

/// Rows of lanes, and whether these are all lanes.
pub(crate) type LaneRows = (Vec<Row>, bool);

impl Store {
    /// Of each partition, for each of these beginnings of rows of a lane, the lanes of the same queue that come after it: at most `each` rows
    /// of each lane, lowest first, and at most so many lanes.
    pub(crate) async fn lanes_after(
        &self,
        wanted: &[(Partition, Vec<Row>)],
        each: usize,
        lanes: usize,
    ) -> Vec<Result<Vec<LaneRows>, StoreError>> {
        match self {
            Self::Memory(store) => store.lanes_after(wanted, each, lanes).await,
            Self::Sqlite(store) => each_of(wanted.len(), store.lanes_after(wanted, each, lanes).await),
            Self::Redis(store) => store.lanes_after(wanted, each, lanes).await,
        }
    }
}

/// Goes from lane to lane. `read` returns the first rows from a row up to another one, at most so many.
pub(super) fn walk<E>(
    lane: &Row,
    (each, lanes): (usize, usize),
    mut read: impl FnMut(&Row, &Row, usize) -> Result<Vec<Row>, E>,
) -> Result<LaneRows, E> {
    let (mut from, to) = (lane_end(lane), queue_end(lane));
    let mut all = Vec::new();
    for _ in 0..lanes {
        let mut rows = read(&from, &to, each)?;
        let Some(lane) = rows.first().map(|row| lane_of(row).to_vec()) else { return Ok((all, true)) };
        rows.retain(|row| row.starts_with(&lane));
        from = lane_end(&lane);
        all.extend(rows);
    }
    Ok((all, read(&from, &to, 1)?.is_empty()))
}
