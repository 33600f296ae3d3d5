//! The terms of queues and handlers: rows of a name and a value, few, and read all at once. See [`crate::codec::policy_row`].

use super::Store;
use super::error::StoreError;

impl Store {
    /// All of them, by name.
    pub(crate) async fn terms(&self) -> Result<Vec<(String, String)>, StoreError> {
        each_store!(self, store => store.terms().await)
    }

    /// Writes one. None removes it.
    pub(crate) async fn set_terms(
        &self,
        name: &str,
        value: Option<&str>,
    ) -> Result<(), StoreError> {
        each_store!(self, store => store.set_terms(name, value).await)
    }
}
