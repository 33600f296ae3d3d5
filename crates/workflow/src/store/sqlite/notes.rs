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
    let statement = |sql| connection.prepare_cached(sql);
    if !statement("SELECT 1 FROM workflow WHERE id = ?1")?.exists([id])? {
        return Ok(NoteOutcome::Gone);
    }
    let mut read = statement("SELECT value FROM result WHERE id = ?1 AND field = ?2")?;
    let writes = note.result_writes(|field| {
        read.query_row(params![id, field_number(field)], |row| row.get(0))
            .optional()
    })?;
    for (field, value) in writes {
        let field = field_number(field);
        match value {
            Some(value) => statement("INSERT OR REPLACE INTO result VALUES (?1, ?2, ?3)")?
                .execute(params![id, field, value])?,
            None => statement("DELETE FROM result WHERE id = ?1 AND field = ?2")?
                .execute(params![id, field])?,
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
