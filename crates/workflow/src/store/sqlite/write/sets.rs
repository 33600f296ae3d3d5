//! Sets of rows in a partition: those ordered by their bytes, and those ordered by time.

use rusqlite::{Connection, params};

use super::lazy_statement::LazyStatement;
use crate::codec::{Row, RowChange, StoreError};
use crate::model::{Partition, WorkflowId};

/// Rows ordered by their bytes.
pub(super) struct RowStatements<'c> {
    insert: LazyStatement<'c>,
    insert_two: LazyStatement<'c>,
    delete: LazyStatement<'c>,
}

/// Called for each row that was added (1) or removed (-1).
pub(super) type OnRowChange<'a> = &'a mut dyn FnMut(&Row, i64);

impl<'c> RowStatements<'c> {
    /// The rows of `table`, which has the columns `partition` and `entry`.
    pub(super) fn new(connection: &'c Connection, table: &str) -> Self {
        let statement = |sql| LazyStatement::new(connection, sql);
        Self {
            insert: statement(format!("INSERT OR IGNORE INTO {table} VALUES (?1, ?2)")),
            insert_two: statement(format!(
                "INSERT OR IGNORE INTO {table} VALUES (?1, ?2), (?1, ?3)"
            )),
            delete: statement(format!(
                "DELETE FROM {table} WHERE partition = ?1 AND entry = ?2"
            )),
        }
    }

    /// Removes and adds rows by separate statements. One UPDATE of a row would search the tree four
    /// times, these two once each.
    pub(super) fn change(
        &mut self,
        at: Partition,
        change: &RowChange,
        on_change: Option<OnRowChange<'_>>,
    ) -> Result<(), StoreError> {
        let Some(on_change) = on_change else {
            self.remove(at, &change.remove, None)?;
            return self.add_uncounted(at, &change.add);
        };
        self.remove(at, &change.remove, Some(&mut *on_change))?;
        for row in &change.add {
            on_change(row, self.insert.run(params![at.0, row])? as i64);
        }
        Ok(())
    }

    /// Adds rows two at a time. The number of rows that existed already is not needed.
    fn add_uncounted(&mut self, at: Partition, rows: &[Row]) -> Result<(), StoreError> {
        for rows in rows.chunks(2) {
            match rows {
                [first, second] => self.insert_two.run(params![at.0, first, second])?,
                rows => self.insert.run(params![at.0, rows[0]])?,
            };
        }
        Ok(())
    }

    pub(super) fn remove(
        &mut self,
        at: Partition,
        rows: &[Row],
        mut on_change: Option<OnRowChange<'_>>,
    ) -> Result<(), StoreError> {
        for row in rows {
            let removed = self.delete.run(params![at.0, row])? as i64;
            if let Some(on_change) = &mut on_change {
                on_change(row, -removed);
            }
        }
        Ok(())
    }
}

/// Rows ordered by time: at most one of each workflow.
pub(super) struct TimeRowStatements<'c> {
    insert: LazyStatement<'c>,
    update: LazyStatement<'c>,
    delete: LazyStatement<'c>,
    /// Removes the rows of one workflow, whenever they are due.
    delete_all: LazyStatement<'c>,
}

impl<'c> TimeRowStatements<'c> {
    /// The rows of `table`, which has the columns `partition`, `at` and `id`.
    pub(super) fn new(connection: &'c Connection, table: &str) -> Self {
        let statement = |sql| LazyStatement::new(connection, sql);
        Self {
            insert: statement(format!("INSERT OR IGNORE INTO {table} VALUES (?1, ?2, ?3)")),
            update: statement(format!(
                "UPDATE OR REPLACE {table} SET at = ?4 WHERE partition = ?1 AND at = ?2 AND id = ?3"
            )),
            delete: statement(format!(
                "DELETE FROM {table} WHERE partition = ?1 AND at = ?2 AND id = ?3"
            )),
            delete_all: statement(format!(
                "DELETE FROM {table} WHERE partition = ?1 AND id = ?2"
            )),
        }
    }

    /// Moves the row of a workflow from one time to another, in microseconds. If both are equal,
    /// the row is written again, because the existing row may have another time than the state.
    pub(super) fn move_row(
        &mut self,
        partition: Partition,
        id: WorkflowId,
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
    pub(super) fn remove_all(
        &mut self,
        partition: Partition,
        id: WorkflowId,
    ) -> Result<(), StoreError> {
        self.delete_all
            .run(params![partition.0, id.bytes().as_slice()])
            .map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(rows: &[&str]) -> Vec<Row> {
        rows.iter().map(|row| row.as_bytes().to_vec()).collect()
    }

    #[test]
    fn rows_that_are_there_or_not_do_not_keep_others_from_being_moved() {
        let connection = Connection::open_in_memory().unwrap();
        for table in ["ready_row", "index_row"] {
            let columns = "(partition INTEGER, entry BLOB, PRIMARY KEY (partition, entry)) STRICT, WITHOUT ROWID";
            connection
                .execute_batch(&format!("CREATE TABLE {table} {columns}"))
                .unwrap();
        }
        let change = |remove: &[&str], add: &[&str]| RowChange {
            remove: rows(remove),
            add: rows(add),
        };
        let changes = [
            change(&[], &["a", "b", "c"]),
            change(&["a", "absent"], &["b", "d"]),
            change(&["c"], &["e", "f", "a", "b"]),
        ];
        let mut ready = RowStatements::new(&connection, "ready_row");
        let mut index = RowStatements::new(&connection, "index_row");
        let mut number = 0;
        for change in &changes {
            ready
                .change(Partition(3), change, Some(&mut |_, more| number += more))
                .unwrap();
            index.change(Partition(3), change, None).unwrap();
        }
        for table in ["ready_row", "index_row"] {
            let sql = format!("SELECT entry FROM {table} WHERE partition = 3 ORDER BY entry");
            let mut found = connection.prepare(&sql).unwrap();
            let found: Vec<Row> = found
                .query_map([], |row| row.get(0))
                .unwrap()
                .map(Result::unwrap)
                .collect();
            assert_eq!(found, rows(&["a", "b", "d", "e", "f"]), "{table}");
        }
        assert_eq!(number, 5);
    }
}
