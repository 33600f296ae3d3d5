//! Notes that the servers of a store leave for each other about their workers. They only matter while servers live: with one server they are in
//! its memory, and in Redis they are gone a day after the last one was written.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Store;
use super::error::StoreError;

/// What notes are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sheet {
    /// The workers that a server knows, by the name of the server.
    Workers,
    /// Workers that are to take no more jobs, by their names.
    Draining,
}

/// The notes of a store that one process has for itself.
#[derive(Debug, Clone, Default)]
pub(super) struct Board(Arc<Mutex<[BTreeMap<String, String>; 2]>>);

impl Board {
    fn sheets(&self) -> MutexGuard<'_, [BTreeMap<String, String>; 2]> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn post(&self, sheet: Sheet, name: &str, note: Option<&str>) {
        let notes = &mut self.sheets()[sheet as usize];
        match note {
            Some(note) => notes.insert(name.to_owned(), note.to_owned()),
            None => notes.remove(name),
        };
    }

    fn posted(&self, sheet: Sheet) -> Vec<(String, String)> {
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
    pub async fn post(
        &self,
        sheet: Sheet,
        name: &str,
        note: Option<&str>,
    ) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(store) => store.board.post(sheet, name, note),
            Self::Redis(store) => return store.post(sheet, name, note).await,
            #[cfg(feature = "test-util")]
            Self::Simulated(store) => store.board.post(sheet, name, note),
        }
        Ok(())
    }

    /// All notes, in no order.
    ///
    /// # Errors
    /// They cannot be read.
    pub async fn posted(&self, sheet: Sheet) -> Result<Vec<(String, String)>, StoreError> {
        match self {
            Self::Sqlite(store) => Ok(store.board.posted(sheet)),
            Self::Redis(store) => store.posted(sheet).await,
            #[cfg(feature = "test-util")]
            Self::Simulated(store) => Ok(store.board.posted(sheet)),
        }
    }
}
