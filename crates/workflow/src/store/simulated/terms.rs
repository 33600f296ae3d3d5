//! Policies of queues and handlers in the simulated store.

use super::SimulatedStore;
use crate::store::error::StoreError;

impl SimulatedStore {
    pub(crate) async fn terms(&self) -> Result<Vec<(String, String)>, StoreError> {
        let tables = self.read().await?;
        Ok(tables
            .terms
            .iter()
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect())
    }

    pub(crate) async fn set_terms(
        &self,
        name: &str,
        value: Option<&str>,
    ) -> Result<(), StoreError> {
        self.write(|tables| match value {
            Some(value) => _ = tables.terms.insert(name.to_owned(), value.to_owned()),
            None => _ = tables.terms.remove(name),
        })
        .await
    }
}
