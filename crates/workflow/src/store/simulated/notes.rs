//! Notes of workers in the simulated store.

use std::convert::Infallible;

use super::SimulatedStore;
use super::tables::SimulatedTables;
use crate::codec::StoreError;
use crate::store::{EncodedNote, NoteOutcome};

impl SimulatedStore {
    pub(crate) async fn add_notes(
        &self,
        notes: Vec<EncodedNote>,
    ) -> Result<Vec<NoteOutcome>, StoreError> {
        self.write(|tables: &mut SimulatedTables| {
            notes.iter().map(|note| add(tables, note)).collect()
        })
        .await
    }
}

fn add(tables: &mut SimulatedTables, note: &EncodedNote) -> NoteOutcome {
    let Some(entry) = tables.workflows.get_mut(&note.workflow) else {
        return NoteOutcome::Gone;
    };
    let writes = note.result_writes(|field| {
        Ok::<_, Infallible>(entry.results.get(&field).map(|value| value.to_vec()))
    });
    let writes = match writes {
        Ok(writes) => writes,
        Err(never) => match never {},
    };
    for (field, value) in writes {
        match value {
            Some(value) => drop(entry.results.insert(field, value.into())),
            None => drop(entry.results.remove(&field)),
        }
    }
    NoteOutcome::Stored
}
