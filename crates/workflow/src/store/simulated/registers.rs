//! The registers of the simulated store.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::SimulatedStore;
use super::tables::SimulatedTables;
use crate::codec::StoreError;
use crate::model::Timestamp;
use crate::store::{PAUSED, Register, RegisteredName, Verification};

/// A register: for each name its value, and the time at which it was last registered.
pub(super) type RegisterEntries = BTreeMap<String, (String, Option<Timestamp>)>;

impl SimulatedStore {
    pub(crate) async fn register_page(
        &self,
        register: Register,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, String)>, StoreError> {
        let mut tables = self.read().await?;
        let from = after.map_or(Bound::Unbounded, |name| Bound::Excluded(name.to_owned()));
        let found = tables
            .register(register)
            .range((from, Bound::Unbounded))
            .take(limit);
        Ok(found
            .map(|(name, (value, _))| (name.clone(), value.clone()))
            .collect())
    }

    pub(crate) async fn registered(
        &self,
        register: Register,
        names: &[String],
    ) -> Result<Vec<Option<String>>, StoreError> {
        let mut tables = self.read().await?;
        let entries = tables.register(register);
        Ok(names
            .iter()
            .map(|name| entries.get(name).map(|(value, _)| value.clone()))
            .collect())
    }

    pub(crate) async fn paused_queues(&self) -> Result<Vec<String>, StoreError> {
        let mut tables = self.read().await?;
        let all = tables.register(Register::Queues).iter();
        Ok(all
            .filter(|(_, (value, _))| value == PAUSED)
            .map(|(name, _)| name.clone())
            .collect())
    }

    pub(crate) async fn set_entry(
        &self,
        register: Register,
        name: &str,
        value: Option<&str>,
    ) -> Result<(), StoreError> {
        self.write(|tables| {
            let entries = tables.register(register);
            match value {
                Some(value) => value.clone_into(&mut entries.entry(name.to_owned()).or_default().0),
                None => _ = entries.remove(name),
            }
        })
        .await
    }

    pub(crate) async fn add_entries(
        &self,
        register: Register,
        entries: &[(String, String)],
        at: Timestamp,
    ) -> Result<(), StoreError> {
        self.write(|tables| {
            let register = tables.register(register);
            for (name, value) in entries {
                register
                    .entry(name.clone())
                    .or_insert_with(|| (value.clone(), None))
                    .1 = Some(at);
            }
        })
        .await
    }

    pub(crate) async fn registered_at(
        &self,
        register: Register,
        names: &[String],
    ) -> Result<Vec<Option<Timestamp>>, StoreError> {
        let mut tables = self.read().await?;
        let entries = tables.register(register);
        Ok(names.iter().map(|name| entries.get(name)?.1).collect())
    }

    pub(crate) async fn remove_unused(
        &self,
        register: Register,
        names: &[RegisteredName],
    ) -> Result<u64, StoreError> {
        self.write(|tables| {
            let entries = tables.register(register);
            let before = entries.len();
            for (name, at) in names {
                if entries
                    .get(name)
                    .is_some_and(|(value, entered)| entered == at && value != PAUSED)
                {
                    entries.remove(name);
                }
            }
            (before - entries.len()) as u64
        })
        .await
    }

    pub(crate) async fn verify(&self) -> Result<Verification, StoreError> {
        let tables = self.read().await?;
        let names = [tables.queues.len() as u64, tables.names.len() as u64];
        Ok(Verification {
            names,
            losses: tables.losses,
        })
    }
}

impl SimulatedTables {
    fn register(&mut self, register: Register) -> &mut RegisterEntries {
        match register {
            Register::Queues => &mut self.queues,
            Register::Names => &mut self.names,
        }
    }
}
