//! Policies of queues and handlers: a few rows of a name and a value, which are read all at once.
//! See [`crate::codec::policy_row`].

use crate::store::Store;
use crate::store::error::StoreError;

impl Store {
    /// All policy rows, by name.
    pub(crate) async fn policy_rows(&self) -> Result<Vec<(String, String)>, StoreError> {
        each_store!(self, store => store.policy_rows().await)
    }

    /// Writes a policy row. `None` removes it.
    pub(crate) async fn set_policy_row(
        &self,
        name: &str,
        value: Option<&str>,
    ) -> Result<(), StoreError> {
        each_store!(self, store => store.set_policy_row(name, value).await)
    }
}
