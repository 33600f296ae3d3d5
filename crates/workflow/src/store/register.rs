//! Registers: the names of queues and workflows that a store knows. They are read in pages, since clients choose the names.

use super::Store;
use super::error::StoreError;
use super::query::Register;
use crate::time::Timestamp;

/// The value of a queue that is paused. All others have none.
pub(super) const PAUSED: &str = "paused";
/// How many entries are read at once where all are wanted.
const PAGE: usize = 4_096;

/// What a look at the store found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Looked {
    /// How many names the registers of queues and of workflows have.
    pub(crate) names: [u64; 2],
    /// How often it was noticed that the store had lost its own keys.
    pub(crate) losses: u64,
}

/// A name, and when it was last entered as far as the register says.
pub(crate) type Entered = (String, Option<Timestamp>);

impl Store {
    /// At most `limit` entries of a register by name, those after `after`.
    pub async fn register_page(
        &self,
        register: Register,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, String)>, StoreError> {
        each_store!(self, store => store.register_page(register, after, limit).await)
    }

    /// All entries of a register, by name.
    pub async fn register(&self, register: Register) -> Result<Vec<(String, String)>, StoreError> {
        let mut all: Vec<(String, String)> = Vec::new();
        loop {
            let after = all.last().map(|(name, _)| name.clone());
            let page = self.register_page(register, after.as_deref(), PAGE).await?;
            let is_last = page.len() < PAGE;
            all.extend(page);
            if is_last {
                return Ok(all);
            }
        }
    }

    /// The values of these names in a register; None for one that is not there.
    pub async fn registered(
        &self,
        register: Register,
        names: &[String],
    ) -> Result<Vec<Option<String>>, StoreError> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        each_store!(self, store => store.registered(register, names).await)
    }

    /// The names of all queues that are paused.
    pub(crate) async fn paused_queues(&self) -> Result<Vec<String>, StoreError> {
        each_store!(self, store => store.paused_queues().await)
    }

    /// Writes one entry of a register. None removes it.
    pub async fn enter(
        &self,
        register: Register,
        name: &str,
        value: Option<&str>,
    ) -> Result<(), StoreError> {
        each_store!(self, store => store.enter(register, name, value).await)
    }

    /// Writes those entries of a register whose names are not there, and notes of all names that they were entered at `at`. Values that
    /// are there stay as they are, whoever writes at the same time.
    pub async fn add(
        &self,
        register: Register,
        entries: &[(String, String)],
        at: Timestamp,
    ) -> Result<(), StoreError> {
        each_store!(self, store => store.add(register, entries, at).await)
    }

    /// When these names were last entered. None: nobody noted it.
    pub(crate) async fn entered(
        &self,
        register: Register,
        names: Vec<String>,
    ) -> Result<Vec<Entered>, StoreError> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let found = each_store!(self, store => store.entered(register, &names).await)?;
        Ok(names.into_iter().zip(found).collect())
    }

    /// Removes those names that were not entered after these moments, and are not those of paused queues. Returns how many.
    pub(crate) async fn forget(
        &self,
        register: Register,
        names: &[Entered],
    ) -> Result<u64, StoreError> {
        if names.is_empty() {
            return Ok(0);
        }
        each_store!(self, store => store.forget(register, names).await)
    }

    /// Looks whether the store is still the one that was opened, and writes again what it lost of its own facts. None where no store can
    /// lose anything.
    ///
    /// # Errors
    /// It cannot be read or written, or another server has made it anew in a way that does not fit.
    pub(crate) async fn look(&self) -> Result<Option<Looked>, StoreError> {
        match self {
            Self::Sqlite(_) => Ok(None),
            Self::Redis(store) => store.verify().await.map(Some),
            #[cfg(feature = "test-util")]
            Self::Simulated(store) => store.look().await.map(Some),
        }
    }
}
