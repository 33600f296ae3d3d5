//! Tables that the servers of a store share about their workers. The rows matter only while servers
//! run: with one server they are in its memory, and Redis deletes them a day after the last write.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Store, StoreError};

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
    fn lock(&self) -> MutexGuard<'_, [BTreeMap<String, String>; 2]> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put_row(&self, table: SharedTable, name: &str, row: Option<&str>) {
        let rows = &mut self.lock()[table as usize];
        match row {
            Some(row) => rows.insert(name.to_owned(), row.to_owned()),
            None => rows.remove(name),
        };
    }

    fn table_rows(&self, table: SharedTable) -> Vec<(String, String)> {
        self.lock()[table as usize]
            .iter()
            .map(|(name, row)| (name.clone(), row.clone()))
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
        table: SharedTable,
        name: &str,
        row: Option<&str>,
    ) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(store) => store.shared_tables.put_row(table, name, row),
            Self::Redis(store) => return store.put_row(table, name, row).await,
            #[cfg(feature = "test-util")]
            Self::Simulated(store) => store.shared_tables.put_row(table, name, row),
        }
        Ok(())
    }

    /// All rows, in no order.
    ///
    /// # Errors
    /// The table cannot be read.
    pub async fn table_rows(
        &self,
        table: SharedTable,
    ) -> Result<Vec<(String, String)>, StoreError> {
        match self {
            Self::Sqlite(store) => Ok(store.shared_tables.table_rows(table)),
            Self::Redis(store) => store.table_rows(table).await,
            #[cfg(feature = "test-util")]
            Self::Simulated(store) => Ok(store.shared_tables.table_rows(table)),
        }
    }
}
