//! Notes of workers in Redis: one round trip to each node, and one script call for several notes of
//! a partition.

use std::collections::BTreeMap;

use tidegate_pipeline::{Arg, Batch, Outcome, Reply};

use super::keys::Part;
use super::reply::{array, count, reason, unavailable, unexpected};
use super::{RedisStore, with_advice, wrote_nothing};
use crate::id::{Partition, WorkflowId};
use crate::store::error::StoreError;
use crate::store::notes::{FULL, MOST_BYTES, Noted, SLOTS, Written};

const SCRIPT: &[u8] = include_bytes!("notes.lua");

/// Notes and bytes at which a script call takes no more: about a millisecond of Redis.
const MOST_NOTES: usize = 128;
const MOST_OF_CALL: usize = 256 << 10;

/// The notes of one script call, as positions among all notes.
#[derive(Debug, Default)]
struct Call {
    notes: Vec<usize>,
    bytes: usize,
}

/// Divides notes into calls, each of one partition.
fn calls(notes: &[Written]) -> Vec<Call> {
    let mut partitions: BTreeMap<Partition, Vec<Call>> = BTreeMap::new();
    for (place, note) in notes.iter().enumerate() {
        let calls = partitions.entry(note.workflow.partition()).or_default();
        if calls
            .last()
            .is_none_or(|call| call.notes.len() >= MOST_NOTES || call.bytes >= MOST_OF_CALL)
        {
            calls.push(Call::default());
        }
        let call = calls.last_mut().expect("there is one with room");
        call.notes.push(place);
        call.bytes += note.entry.len() + note.progress.as_ref().map_or(0, Vec::len);
    }
    partitions.into_values().flatten().collect()
}

/// The outcomes of the notes of a call.
fn noted(outcome: &Outcome, number: usize) -> Result<Vec<Noted>, StoreError> {
    let reply = match outcome {
        Outcome::Reply(reply) => reply,
        failed if wrote_nothing(failed) => return Err(unavailable(failed)),
        failed => {
            return Err(StoreError::Unknown {
                reason: with_advice(reason(failed)),
            });
        }
    };
    let each = array(reply)?;
    if each.len() != number {
        return Err(unexpected("what became of notes", reply));
    }
    let one = |one: &Reply| {
        Ok(if count(one)? > 0 {
            Noted::Yes
        } else {
            Noted::Gone
        })
    };
    each.into_iter().map(one).collect()
}

impl RedisStore {
    pub(crate) async fn note(&self, notes: &[Written]) -> Vec<Result<Noted, StoreError>> {
        if let Err(error) = self.must_fit() {
            return vec![Err(error); notes.len()];
        }
        let calls = calls(notes);
        let mut batch = Batch::new();
        for call in &calls {
            self.append_notes(&mut batch, call.notes.iter().map(|&place| &notes[place]));
        }
        let outcomes = self.send(batch).await;
        let mut all: Vec<Result<Noted, StoreError>> = vec![Ok(Noted::Gone); notes.len()];
        for (call, outcome) in calls.iter().zip(&outcomes) {
            match noted(outcome, call.notes.len()) {
                Ok(each) => call
                    .notes
                    .iter()
                    .zip(each)
                    .for_each(|(&place, noted)| all[place] = Ok(noted)),
                Err(error) => call
                    .notes
                    .iter()
                    .for_each(|&place| all[place] = Err(error.clone())),
            }
        }
        all
    }

    /// Adds a script call. It is not repeated if its outcome is unknown: its lines could be added
    /// twice.
    fn append_notes<'a>(
        &self,
        batch: &mut Batch,
        notes: impl Iterator<Item = &'a Written> + Clone,
    ) {
        let mut workflows: BTreeMap<WorkflowId, i64> = BTreeMap::new();
        let mut keys: Vec<String> = Vec::new();
        for Written { workflow, .. } in notes.clone() {
            let next = workflows.len() as i64;
            workflows.entry(*workflow).or_insert_with(|| {
                keys.extend(
                    [Part::Results, Part::State, Part::Small]
                        .map(|part| self.keys.part(*workflow, part)),
                );
                next
            });
        }
        let mut args = vec![Arg::Bytes(SCRIPT), Arg::Integer(keys.len() as i64)];
        args.extend(keys.iter().map(|key| Arg::Key(key.as_bytes())));
        args.extend([i64::from(SLOTS), MOST_BYTES as i64, FULL as i64].map(Arg::Integer));
        for Written {
            workflow,
            job,
            progress,
            entry,
            lines,
        } in notes
        {
            args.extend([
                Arg::Integer(workflows[workflow]),
                Arg::Integer(job.0.into()),
            ]);
            args.extend([
                Arg::Bytes(progress.as_deref().unwrap_or_default()),
                Arg::Bytes(entry),
            ]);
            args.push(Arg::Integer(*lines as i64));
        }
        batch.unit().command("EVAL", &args);
    }
}
