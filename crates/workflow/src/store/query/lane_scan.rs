//! Reads the first rows of many lanes, without reading the other rows of each.

use crate::codec::{Row, StoreError, lane_end, lane_prefix, queue_end, queue_rows};
use crate::model::Partition;
use crate::store::{Store, split_result};

/// A range of ready rows, of which the lanes are scanned: from a row, inclusive, up to another one,
/// exclusive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LaneScan {
    pub(crate) from: Row,
    pub(crate) to: Row,
}

impl LaneScan {
    /// The lanes of a queue that follow a lane. `lane` is the prefix of the lane's rows.
    pub(crate) fn rest_of_queue(lane: &[u8]) -> Self {
        Self {
            from: lane_end(lane),
            to: queue_end(lane),
        }
    }

    /// All lanes of a queue.
    pub(crate) fn all_of_queue(queue: &str) -> Self {
        let rows = queue_rows(queue);
        Self {
            to: queue_end(&rows),
            from: rows,
        }
    }

    /// All lanes of all queues.
    pub(crate) fn all() -> Self {
        // No name contains byte 255.
        Self {
            from: Vec::new(),
            to: vec![u8::MAX],
        }
    }

    /// The lanes of this scan that follow a lane.
    pub(crate) fn after_lane(self, lane: &[u8]) -> Self {
        Self {
            from: self.from.max(lane_end(lane)),
            ..self
        }
    }
}

/// Rows of lanes, and whether the scan reached its end.
pub(crate) type LaneRows = (Vec<Row>, bool);

impl Store {
    /// Scans lanes of partitions: at most `rows_per_lane` rows of each lane, lowest first, and at
    /// most `max_lanes` lanes of each scan.
    pub(crate) async fn lanes(
        &self,
        wanted: &[(Partition, Vec<LaneScan>)],
        rows_per_lane: usize,
        max_lanes: usize,
    ) -> Vec<Result<Vec<LaneRows>, StoreError>> {
        match self {
            #[cfg(feature = "test-util")]
            Self::Simulated(store) => store.lanes(wanted, rows_per_lane, max_lanes).await,
            Self::Sqlite(store) => split_result(
                wanted.len(),
                store.lanes(wanted, rows_per_lane, max_lanes).await,
            ),
            Self::Redis(store) => store.lanes(wanted, rows_per_lane, max_lanes).await,
        }
    }
}

/// Scans lane after lane. `read(from, to, limit)` returns the first `limit` rows of a range.
pub(crate) fn scan_lanes<E>(
    LaneScan { from, to }: &LaneScan,
    rows_per_lane: usize,
    max_lanes: usize,
    mut read: impl FnMut(&Row, &Row, usize) -> Result<Vec<Row>, E>,
) -> Result<LaneRows, E> {
    let mut from = from.clone();
    let mut all = Vec::new();
    for _ in 0..max_lanes {
        let mut rows = read(&from, to, rows_per_lane)?;
        let Some(lane) = rows.first().map(|row| lane_prefix(row).to_vec()) else {
            return Ok((all, true));
        };
        rows.retain(|row| row.starts_with(&lane));
        from = lane_end(&lane);
        all.extend(rows);
    }
    Ok((all, read(&from, to, 1)?.is_empty()))
}
