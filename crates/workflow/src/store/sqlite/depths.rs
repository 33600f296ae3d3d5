//! Number of ready rows of each queue, and of each lane with limits, in each partition. The rows
//! are counted once; then each transaction updates the numbers. So a read costs only the number of
//! queues. Only this process writes the file.

use std::sync::{Mutex, MutexGuard, PoisonError};

use hashbrown::HashMap;
use rusqlite::Connection;

use crate::codec::rows::{Row, is_limited, lane_of};
use crate::id::Partition;
use crate::store::error::StoreError;

/// A partition, and the prefix of the rows of a queue or a lane.
type Place = (Partition, Row);

/// The numbers. `None` if the rows were not counted yet, or a commit has an unknown outcome.
#[derive(Debug, Default)]
pub(super) struct Depths(Mutex<Option<HashMap<Place, u64>>>);

/// The changes of the numbers by one transaction.
#[derive(Debug, Default)]
pub(super) struct Added(HashMap<Place, i64>);

impl Added {
    /// Adds `rows` rows like this one; a negative number removes rows.
    pub(super) fn note(&mut self, partition: Partition, row: &[u8], rows: i64) {
        if rows != 0 {
            *self
                .0
                .entry((partition, queue_of(row).to_vec()))
                .or_default() += rows;
            let lane = lane_of(row);
            if is_limited(lane) {
                *self.0.entry((partition, lane.to_vec())).or_default() += rows;
            }
        }
    }
}

impl Depths {
    fn known(&self) -> MutexGuard<'_, Option<HashMap<Place, u64>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn are_known(&self) -> bool {
        self.known().is_some()
    }

    /// For each partition and prefix, the number of rows that begin with the prefix of a queue or a
    /// lane. `None` if they must be counted.
    pub(super) fn of(&self, prefixes: &[Row], partitions: &[Partition]) -> Option<Vec<Vec<u64>>> {
        let known = self.known();
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
    pub(super) fn add(&self, added: Added) {
        let mut known = self.known();
        let Some(known) = known.as_mut() else { return };
        for (place, rows) in added.0 {
            let number = known
                .remove(&place)
                .unwrap_or_default()
                .saturating_add_signed(rows);
            // Names that are not used any more take no memory.
            if number > 0 {
                known.insert(place, number);
            }
        }
    }

    /// Discards the numbers, because a commit has an unknown outcome.
    pub(super) fn doubt(&self) {
        *self.known() = None;
    }

    /// Counts the rows if necessary: 0.1 s for a million rows. No transaction may be open.
    pub(super) fn count(&self, connection: &Connection) -> Result<(), StoreError> {
        if self.are_known() {
            return Ok(());
        }
        let mut counted = Added::default();
        let mut rows = connection.prepare_cached("SELECT partition, entry FROM ready_row")?;
        let mut rows = rows.query([])?;
        // Rows of a lane are adjacent.
        let mut place = (Partition(0), Vec::new());
        let mut number = 0;
        while let Some(row) = rows.next()? {
            let (partition, entry) = (
                Partition(row.get(0)?),
                row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?,
            );
            if place.0 != partition || !entry.starts_with(&place.1) || place.1.is_empty() {
                counted.note(place.0, &place.1, number);
                (place, number) = ((partition, lane_of(entry).to_vec()), 0);
            }
            number += 1;
        }
        counted.note(place.0, &place.1, number);
        *self.known() = Some(HashMap::new());
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
