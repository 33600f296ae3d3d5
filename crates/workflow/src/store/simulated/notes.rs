//! Notes of workers in the simulated store.

use std::convert::Infallible;

use super::SimulatedStore;
use super::tables::Tables;
use crate::store::error::StoreError;
use crate::store::notes::{Noted, Written};

impl SimulatedStore {
    pub(crate) async fn note(&self, notes: &[Written]) -> Result<Vec<Noted>, StoreError> {
        self.write(|tables: &mut Tables| notes.iter().map(|note| add(tables, note)).collect())
            .await
    }
}

fn add(tables: &mut Tables, note: &Written) -> Noted {
    let Some(entry) = tables.workflows.get_mut(&note.workflow) else {
        return Noted::Gone;
    };
    let puts = note
        .puts(|field| Ok::<_, Infallible>(entry.results.get(&field).map(|value| value.to_vec())));
    let puts = match puts {
        Ok(puts) => puts,
        Err(never) => match never {},
    };
    for (field, value) in puts {
        match value {
            Some(value) => drop(entry.results.insert(field, value.into())),
            None => drop(entry.results.remove(&field)),
        }
    }
    Noted::Yes
}
