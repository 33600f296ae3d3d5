//! Policies of queues and handlers: a few rows of a name and a value, which are read all at once.
//! See [`crate::codec::policy_row`].

use super::Store;
use super::error::StoreError;

impl Store {
    /// All policy rows, by name.
    pub(crate) async fn terms(&self) -> Result<Vec<(String, String)>, StoreError> {
        each_store!(self, store => store.terms().await)
    }

    /// Writes a policy row. `None` removes it.
    pub(crate) async fn set_terms(
        &self,
        name: &str,
        value: Option<&str>,
    ) -> Result<(), StoreError> {
        each_store!(self, store => store.set_terms(name, value).await)
    }
}
