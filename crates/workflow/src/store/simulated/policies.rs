//! Policies of queues and handlers in the simulated store.

use super::SimulatedStore;
use crate::codec::StoreError;

impl SimulatedStore {
    pub(crate) async fn policy_rows(&self) -> Result<Vec<(String, String)>, StoreError> {
        let tables = self.read().await?;
        Ok(tables
            .policies
            .iter()
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect())
    }

    pub(crate) async fn set_policy_row(
        &self,
        name: &str,
        value: Option<&str>,
    ) -> Result<(), StoreError> {
        self.write(|tables| match value {
            Some(value) => _ = tables.policies.insert(name.to_owned(), value.to_owned()),
            None => _ = tables.policies.remove(name),
        })
        .await
    }
}
