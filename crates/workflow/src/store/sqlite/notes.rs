//! Notes of workers in a SQLite file.

use rusqlite::{Connection, OptionalExtension, params};

use super::SqliteStore;
use super::column::field_number;
use super::write::WriteRequest;
use crate::codec::StoreError;
use crate::store::{EncodedNote, NoteOutcome};

/// Adds a note within a transaction.
pub(super) fn add(connection: &Connection, note: &EncodedNote) -> Result<NoteOutcome, StoreError> {
    let id = note.workflow.bytes().as_slice();
    let mut exists = connection.prepare_cached("SELECT 1 FROM workflow WHERE id = ?1")?;
    if !exists.exists([id])? {
        return Ok(NoteOutcome::Gone);
    }
    let mut read =
        connection.prepare_cached("SELECT value FROM result WHERE id = ?1 AND field = ?2")?;
    let writes = note.result_writes(|field| {
        read.query_row(params![id, field_number(field)], |row| row.get(0))
            .optional()
    })?;
    for (field, value) in writes {
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
    Ok(NoteOutcome::Stored)
}

impl SqliteStore {
    pub(crate) async fn add_notes(
        &self,
        notes: Vec<EncodedNote>,
    ) -> Result<Vec<NoteOutcome>, StoreError> {
        self.write(notes, WriteRequest::Notes).await
    }
}
