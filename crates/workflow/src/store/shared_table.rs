//! Notes that the servers of a store leave for each other about their workers. They only matter while servers live: with one server they are in
//! its memory, and in Redis they are gone a day after the last one was written.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Store;
use super::error::StoreError;

/// What notes are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SharedTable {
    /// The workers that a server knows, by the name of the server.
    Workers,
    /// Workers that are to take no more jobs, by their names.
    Draining,
}

/// The notes of a store that one process has for itself.
#[derive(Debug, Clone, Default)]
pub(super) struct SharedTables(Arc<Mutex<[BTreeMap<String, String>; 2]>>);

impl SharedTables {
    fn sheets(&self) -> MutexGuard<'_, [BTreeMap<String, String>; 2]> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put_row(&self, sheet: SharedTable, name: &str, note: Option<&str>) {
        let notes = &mut self.sheets()[sheet as usize];
        match note {
            Some(note) => notes.insert(name.to_owned(), note.to_owned()),
            None => notes.remove(name),
        };
    }

    fn table_rows(&self, sheet: SharedTable) -> Vec<(String, String)> {
        self.sheets()[sheet as usize]
            .iter()
            .map(|(name, note)| (name.clone(), note.clone()))
            .collect()
    }
}

impl Store {
    /// Leaves a note in the place of the one with the same name. None removes it.
    ///
    /// # Errors
    /// It may have been written or not.
    pub async fn put_row(
        &self,
        sheet: SharedTable,
        name: &str,
        note: Option<&str>,
    ) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(store) => store.board.put_row(sheet, name, note),
            Self::Redis(store) => return store.put_row(sheet, name, note).await,
            #[cfg(feature = "test-util")]
            Self::Simulated(store) => store.board.put_row(sheet, name, note),
        }
        Ok(())
    }

    /// All notes, in no order.
    ///
    /// # Errors
    /// They cannot be read.
    pub async fn table_rows(
        &self,
        sheet: SharedTable,
    ) -> Result<Vec<(String, String)>, StoreError> {
        match self {
            Self::Sqlite(store) => Ok(store.board.table_rows(sheet)),
            Self::Redis(store) => store.table_rows(sheet).await,
            #[cfg(feature = "test-util")]
            Self::Simulated(store) => Ok(store.board.table_rows(sheet)),
        }
    }
}
