//! Registers: the names of queues and workflows that a store has. They are read in pages, because
//! clients choose the names.
//!
//! Policies of queues and handlers are a few rows of a name and a value, which are read all at once.
//! See [`crate::codec::policy_row`].

use super::{Register, Store, StoreError};
use crate::model::Timestamp;

/// The value of a paused queue. Other names have an empty value.
pub(super) const PAUSED: &str = "paused";
/// Entries of one page when all are read.
const PAGE_ENTRIES: usize = 4_096;

/// The result of verifying the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Verification {
    /// Number of names in the registers of queues and of workflows.
    pub(crate) names: [u64; 2],
    /// Number of times at which the store was found to have lost its own keys.
    pub(crate) losses: u64,
}

/// A name and the time at which it was last registered. `None` if the register does not have a
/// time.
pub(crate) type RegisteredName = (String, Option<Timestamp>);

impl Store {
    for_each_store! {
        /// At most `limit` entries of a register that follow `after`, by name.
        pub async fn register_page(
            register: Register,
            after: Option<&str>,
            limit: usize,
        ) -> Result<Vec<(String, String)>, StoreError>;

        /// The names of all paused queues.
        pub(crate) async fn paused_queues() -> Result<Vec<String>, StoreError>;

        /// Writes one entry of a register. `None` removes it.
        pub async fn set_entry(
            register: Register,
            name: &str,
            value: Option<&str>,
        ) -> Result<(), StoreError>;

        /// Adds those entries of a register whose names are missing, and records for all names that
        /// they were registered at `at`. Existing values stay, even if several servers write at the
        /// same time.
        pub async fn add_entries(
            register: Register,
            entries: &[(String, String)],
            at: Timestamp,
        ) -> Result<(), StoreError>;

        /// All policy rows, by name.
        pub(crate) async fn policy_rows() -> Result<Vec<(String, String)>, StoreError>;

        /// Writes a policy row. `None` removes it.
        pub(crate) async fn set_policy_row(
            name: &str,
            value: Option<&str>,
        ) -> Result<(), StoreError>;
    }

    /// All entries of a register, by name.
    pub async fn register(&self, register: Register) -> Result<Vec<(String, String)>, StoreError> {
        let mut all: Vec<(String, String)> = Vec::new();
        loop {
            let after = all.last().map(|(name, _)| name.clone());
            let page = self
                .register_page(register, after.as_deref(), PAGE_ENTRIES)
                .await?;
            let is_last = page.len() < PAGE_ENTRIES;
            all.extend(page);
            if is_last {
                return Ok(all);
            }
        }
    }

    /// The values of names in a register. `None` for a name that is not registered.
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

    /// The times at which names were last registered. `None` if no time is recorded.
    pub(crate) async fn registered_at(
        &self,
        register: Register,
        names: Vec<String>,
    ) -> Result<Vec<RegisteredName>, StoreError> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let found = each_store!(self, store => store.registered_at(register, &names).await)?;
        Ok(names.into_iter().zip(found).collect())
    }

    /// Removes those names that were not registered after the given times, except names of paused
    /// queues. Returns the number of removed names.
    pub(crate) async fn remove_unused(
        &self,
        register: Register,
        names: &[RegisteredName],
    ) -> Result<u64, StoreError> {
        if names.is_empty() {
            return Ok(0);
        }
        each_store!(self, store => store.remove_unused(register, names).await)
    }

    /// Verifies that the store is still the one that was opened, and writes its lost facts again.
    /// `None` for a store that cannot lose them.
    ///
    /// # Errors
    /// The store cannot be read or written, or another server has created it anew in a way that
    /// does not fit.
    pub(crate) async fn verify(&self) -> Result<Option<Verification>, StoreError> {
        match self {
            Self::Sqlite(_) => Ok(None),
            Self::Redis(store) => store.verify().await.map(Some),
            #[cfg(feature = "test-util")]
            Self::Simulated(store) => store.verify().await.map(Some),
        }
    }
}
