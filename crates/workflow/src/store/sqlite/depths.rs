//! Number of ready rows of each queue, and of each lane with limits, in each partition. The rows
//! are counted once; then each transaction updates the numbers. So a read costs only the number of
//! queues. Only this process writes the file.

use std::sync::{Mutex, MutexGuard, PoisonError};

use hashbrown::HashMap;
use rusqlite::Connection;

use crate::codec::{Row, StoreError, is_limited, lane_prefix};
use crate::model::Partition;

/// A partition, and the prefix of the rows of a queue or a lane.
type DepthKey = (Partition, Row);

/// The numbers. `None` if the rows were not counted yet, or a commit has an unknown outcome.
#[derive(Debug, Default)]
pub(super) struct Depths(Mutex<Option<HashMap<DepthKey, u64>>>);

/// The changes of the numbers by one transaction.
#[derive(Debug, Default)]
pub(super) struct DepthChanges(HashMap<DepthKey, i64>);

impl DepthChanges {
    /// Adds `rows` rows like this one; a negative number removes rows.
    pub(super) fn add_rows(&mut self, partition: Partition, row: &[u8], rows: i64) {
        if rows != 0 {
            *self
                .0
                .entry((partition, queue_of(row).to_vec()))
                .or_default() += rows;
            let lane = lane_prefix(row);
            if is_limited(lane) {
                *self.0.entry((partition, lane.to_vec())).or_default() += rows;
            }
        }
    }
}

impl Depths {
    fn lock(&self) -> MutexGuard<'_, Option<HashMap<DepthKey, u64>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn are_known(&self) -> bool {
        self.lock().is_some()
    }

    /// For each partition and prefix, the number of rows that begin with the prefix of a queue or a
    /// lane. `None` if they must be counted.
    pub(super) fn counts_for(
        &self,
        prefixes: &[Row],
        partitions: &[Partition],
    ) -> Option<Vec<Vec<u64>>> {
        let known = self.lock();
        let known = known.as_ref()?;
        let number = |at: Partition, prefix: &Row| {
            known
                .get(&(at, prefix.clone()))
                .copied()
                .unwrap_or_default()
        };
        Some(
            partitions
                .iter()
                .map(|&at| prefixes.iter().map(|prefix| number(at, prefix)).collect())
                .collect(),
        )
    }

    /// Adds the changes of a committed transaction.
    pub(super) fn add(&self, added: DepthChanges) {
        let mut known = self.lock();
        let Some(known) = known.as_mut() else { return };
        for (key, rows) in added.0 {
            let number = known
                .remove(&key)
                .unwrap_or_default()
                .saturating_add_signed(rows);
            // Names that are not used any more take no memory.
            if number > 0 {
                known.insert(key, number);
            }
        }
    }

    /// Discards the numbers, because a commit has an unknown outcome.
    pub(super) fn discard(&self) {
        *self.lock() = None;
    }

    /// Counts the rows if necessary: 0.1 s for a million rows. No transaction may be open.
    pub(super) fn count(&self, connection: &Connection) -> Result<(), StoreError> {
        if self.are_known() {
            return Ok(());
        }
        let mut counted = DepthChanges::default();
        let mut rows = connection.prepare_cached("SELECT partition, entry FROM ready_row")?;
        let mut rows = rows.query([])?;
        // Rows of a lane are adjacent.
        let mut key = (Partition(0), Vec::new());
        let mut number = 0;
        while let Some(row) = rows.next()? {
            let (partition, entry) = (
                Partition(row.get(0)?),
                row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?,
            );
            if key.0 != partition || !entry.starts_with(&key.1) || key.1.is_empty() {
                counted.add_rows(key.0, &key.1, number);
                (key, number) = ((partition, lane_prefix(entry).to_vec()), 0);
            }
            number += 1;
        }
        counted.add_rows(key.0, &key.1, number);
        *self.lock() = Some(HashMap::new());
        self.add(counted);
        Ok(())
    }
}

/// The prefix of all rows of a queue: its name and a zero.
fn queue_of(row: &[u8]) -> &[u8] {
    let end = row
        .iter()
        .position(|&byte| byte == 0)
        .map_or(row.len(), |zero| zero + 1);
    &row[..end]
}
