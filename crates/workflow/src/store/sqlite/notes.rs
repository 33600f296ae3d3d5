//! Notes of workers in a SQLite file.

use rusqlite::{Connection, OptionalExtension, params};

use super::column::field_number;
use super::{SqliteStore, write};
use crate::store::error::StoreError;
use crate::store::notes::{Noted, Written};

/// Adds a note within a transaction.
pub(super) fn add(connection: &Connection, note: &Written) -> Result<Noted, StoreError> {
    let id = note.workflow.bytes().as_slice();
    let mut look = connection.prepare_cached("SELECT 1 FROM workflow WHERE id = ?1")?;
    if !look.exists([id])? {
        return Ok(Noted::Gone);
    }
    let mut read =
        connection.prepare_cached("SELECT value FROM result WHERE id = ?1 AND field = ?2")?;
    let puts = note.puts(|field| {
        read.query_row(params![id, field_number(field)], |row| row.get(0))
            .optional()
    })?;
    for (field, value) in puts {
        let sql = match value {
            Some(_) => "INSERT OR REPLACE INTO result VALUES (?1, ?2, ?3)",
            None => "DELETE FROM result WHERE id = ?1 AND field = ?2",
        };
        let mut put = connection.prepare_cached(sql)?;
        match value {
            Some(value) => put.execute(params![id, field_number(field), value])?,
            None => put.execute(params![id, field_number(field)])?,
        };
    }
    Ok(Noted::Yes)
}

impl SqliteStore {
    pub(crate) async fn note(&self, notes: Vec<Written>) -> Result<Vec<Noted>, StoreError> {
        self.write(|answer| write::Request::Notes { notes, answer })
            .await
    }
}
