//! Tables that the servers of a store share about their workers. The rows matter only while servers
//! run: with one server they are in its memory, and Redis deletes them a day after the last write.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Store;
use super::error::StoreError;

/// One of the shared tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SharedTable {
    /// The workers of each server, by the name of the server.
    Workers,
    /// Workers that are draining, by name.
    Draining,
}

/// The tables of a store that only one process uses.
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
    /// Writes a row, replacing the one with its name. `None` removes it.
    ///
    /// # Errors
    /// The row may have been written or not.
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

    /// All rows, in no order.
    ///
    /// # Errors
    /// The table cannot be read.
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
