//! Sets of rows in a partition: those ordered by their bytes, and those ordered by time.

use rusqlite::{Connection, params};

use super::kept::Kept;
use crate::id::{Partition, WorkflowId};
use crate::record::change::RowChange;
use crate::record::rows::Row;
use crate::store::error::StoreError;

/// Rows ordered by their bytes.
pub(super) struct Rows<'c> {
    insert: Kept<'c>,
    update: Kept<'c>,
    delete: Kept<'c>,
}

/// Who hears of each row that was added (1) or removed (-1).
pub(super) type Hears<'a> = &'a mut dyn FnMut(&Row, i64);

impl<'c> Rows<'c> {
    pub(super) fn ready(connection: &'c Connection) -> Self {
        Self {
            insert: Kept::new(connection, "INSERT OR IGNORE INTO ready_row VALUES (?1, ?2)"),
            update: Kept::new(
                connection,
                "UPDATE OR IGNORE ready_row SET entry = ?3 WHERE partition = ?1 AND entry = ?2",
            ),
            delete: Kept::new(connection, "DELETE FROM ready_row WHERE partition = ?1 AND entry = ?2"),
        }
    }

    pub(super) fn index(connection: &'c Connection) -> Self {
        Self {
            insert: Kept::new(connection, "INSERT OR IGNORE INTO index_row VALUES (?1, ?2)"),
            update: Kept::new(
                connection,
                "UPDATE OR REPLACE index_row SET entry = ?3 WHERE partition = ?1 AND entry = ?2",
            ),
            delete: Kept::new(connection, "DELETE FROM index_row WHERE partition = ?1 AND entry = ?2"),
        }
    }

    pub(super) fn change(&mut self, at: Partition, change: &RowChange, hears: Hears<'_>) -> Result<(), StoreError> {
        // One statement that moves a row costs less than two.
        let moved = change.remove.len().min(change.add.len());
        let mut unmoved = Vec::new();
        for (old, new) in change.remove.iter().zip(&change.add) {
            if self.update.run(params![at.0, old, new])? == 0 {
                unmoved.push((old, new));
            } else {
                hears(old, -1);
                hears(new, 1);
            }
        }
        // The row to remove is not there, or the row to add is.
        let (absent, present): (Vec<&Row>, Vec<&Row>) = unmoved.into_iter().unzip();
        self.remove(at, change.remove[moved..].iter().chain(absent), &mut *hears)?;
        for row in change.add[moved..].iter().chain(present) {
            hears(row, self.insert.run(params![at.0, row])? as i64);
        }
        Ok(())
    }

    pub(super) fn remove<'r>(
        &mut self,
        at: Partition,
        rows: impl Iterator<Item = &'r Row>,
        hears: Hears<'_>,
    ) -> Result<(), StoreError> {
        for row in rows {
            hears(row, -(self.delete.run(params![at.0, row])? as i64));
        }
        Ok(())
    }
}

/// Rows ordered by time: at most one of each workflow.
pub(super) struct Timed<'c> {
    insert: Kept<'c>,
    update: Kept<'c>,
    delete: Kept<'c>,
    /// Removes those of one workflow, whenever they are due.
    delete_all: Kept<'c>,
}

impl<'c> Timed<'c> {
    pub(super) fn timers(connection: &'c Connection) -> Self {
        Self {
            insert: Kept::new(connection, "INSERT OR IGNORE INTO timer VALUES (?1, ?2, ?3)"),
            update: Kept::new(
                connection,
                "UPDATE OR REPLACE timer SET at = ?4 WHERE partition = ?1 AND at = ?2 AND id = ?3",
            ),
            delete: Kept::new(connection, "DELETE FROM timer WHERE partition = ?1 AND at = ?2 AND id = ?3"),
            delete_all: Kept::new(connection, "DELETE FROM timer WHERE partition = ?1 AND id = ?2"),
        }
    }

    pub(super) fn expiries(connection: &'c Connection) -> Self {
        Self {
            insert: Kept::new(connection, "INSERT OR IGNORE INTO expiry VALUES (?1, ?2, ?3)"),
            update: Kept::new(
                connection,
                "UPDATE OR REPLACE expiry SET at = ?4 WHERE partition = ?1 AND at = ?2 AND id = ?3",
            ),
            delete: Kept::new(connection, "DELETE FROM expiry WHERE partition = ?1 AND at = ?2 AND id = ?3"),
            delete_all: Kept::new(connection, "DELETE FROM expiry WHERE partition = ?1 AND id = ?2"),
        }
    }

    /// Moves the row of a workflow from one time to another, in microseconds. The same time twice: the row is written again, because it
    /// may not be the one that the state calls for.
    pub(super) fn shift(
        &mut self,
        (partition, id): (Partition, WorkflowId),
        old: Option<i64>,
        new: Option<i64>,
    ) -> Result<(), StoreError> {
        let key = id.bytes().as_slice();
        let was_there = match (old, new) {
            (old, new) if old == new => false,
            (Some(old), Some(new)) => {
                if self.update.run(params![partition.0, old, key, new])? > 0 {
                    return Ok(());
                }
                false
            }
            (Some(old), None) => self.delete.run(params![partition.0, old, key])? > 0,
            (None, _) => true,
        };
        if !was_there {
            self.delete_all.run(params![partition.0, key])?;
        }
        if let Some(new) = new {
            self.insert.run(params![partition.0, new, key])?;
        }
        Ok(())
    }

    /// Removes the row of a workflow, whenever it is due.
    pub(super) fn remove_all(&mut self, (partition, id): (Partition, WorkflowId)) -> Result<(), StoreError> {
        self.delete_all.run(params![partition.0, id.bytes().as_slice()]).map(drop)
    }
}
