//! Notes of workers in Redis: one round trip to each node, and one script call for several notes of
//! a partition.

use std::collections::BTreeMap;

use tidegate_pipeline::{Arg, Batch, Outcome, Reply};

use super::keys::WorkflowKey;
use super::read::reply::{array, count, reason, unavailable, unexpected};
use super::{RedisStore, key_arg, with_advice, wrote_nothing};
use crate::codec::StoreError;
use crate::model::{Partition, WorkflowId};
use crate::store::{
    EncodedNote, FULL_CHUNK_BYTES, LOG_SLOTS, MAX_LOG_BYTES, NoteOutcome, split_result,
};

const SCRIPT: &[u8] = include_bytes!("notes/notes.lua");

/// Notes and bytes at which a script call takes no more: about a millisecond of Redis.
const MAX_NOTES: usize = 128;
const MAX_CALL_BYTES: usize = 256 << 10;

/// The notes of one script call, as positions among all notes.
#[derive(Debug, Default)]
struct NotesCall {
    notes: Vec<usize>,
    bytes: usize,
}

/// Divides notes into calls, each of one partition.
fn calls(notes: &[EncodedNote]) -> Vec<NotesCall> {
    let mut partitions: BTreeMap<Partition, Vec<NotesCall>> = BTreeMap::new();
    for (position, note) in notes.iter().enumerate() {
        let calls = partitions.entry(note.workflow.partition()).or_default();
        if calls
            .last()
            .is_none_or(|call| call.notes.len() >= MAX_NOTES || call.bytes >= MAX_CALL_BYTES)
        {
            calls.push(NotesCall::default());
        }
        let call = calls.last_mut().expect("there is one with room");
        call.notes.push(position);
        call.bytes += note.entry.len() + note.progress.as_ref().map_or(0, Vec::len);
    }
    partitions.into_values().flatten().collect()
}

/// The outcomes of the notes of a call.
fn parse_outcomes(outcome: &Outcome, number: usize) -> Result<Vec<NoteOutcome>, StoreError> {
    let reply = match outcome {
        Outcome::Reply(reply) => reply,
        failed if wrote_nothing(failed) => return Err(unavailable(failed)),
        failed => {
            return Err(StoreError::unknown(with_advice(reason(failed))));
        }
    };
    let each = array(reply)?;
    if each.len() != number {
        return Err(unexpected("what became of notes", reply));
    }
    let one = |one: &Reply| {
        Ok(if count(one)? > 0 {
            NoteOutcome::Stored
        } else {
            NoteOutcome::Gone
        })
    };
    each.into_iter().map(one).collect()
}

impl RedisStore {
    pub(crate) async fn add_notes(
        &self,
        notes: Vec<EncodedNote>,
    ) -> Vec<Result<NoteOutcome, StoreError>> {
        if let Err(error) = self.ensure_compatible() {
            return vec![Err(error); notes.len()];
        }
        let calls = calls(&notes);
        let mut batch = Batch::new();
        for call in &calls {
            let notes = call.notes.iter().map(|&position| &notes[position]);
            self.append_notes(&mut batch, notes);
        }
        let outcomes = self.send(batch).await;
        let mut all: Vec<Result<NoteOutcome, StoreError>> =
            vec![Ok(NoteOutcome::Gone); notes.len()];
        for (call, outcome) in calls.iter().zip(&outcomes) {
            let number = call.notes.len();
            let each = split_result(number, parse_outcomes(outcome, number));
            for (&position, noted) in call.notes.iter().zip(each) {
                all[position] = noted;
            }
        }
        all
    }

    /// Adds a script call. It is not repeated if its outcome is unknown: its lines could be added
    /// twice.
    fn append_notes<'a>(
        &self,
        batch: &mut Batch,
        notes: impl Iterator<Item = &'a EncodedNote> + Clone,
    ) {
        let mut workflows: BTreeMap<WorkflowId, i64> = BTreeMap::new();
        let mut keys: Vec<String> = Vec::new();
        for EncodedNote { workflow, .. } in notes.clone() {
            let next = workflows.len() as i64;
            workflows.entry(*workflow).or_insert_with(|| {
                keys.extend(
                    [WorkflowKey::Results, WorkflowKey::State, WorkflowKey::Small]
                        .map(|part| self.keys.workflow_key(*workflow, part)),
                );
                next
            });
        }
        let mut args = vec![Arg::Bytes(SCRIPT), Arg::Integer(keys.len() as i64)];
        args.extend(keys.iter().map(|key| key_arg(key)));
        args.extend(
            [
                i64::from(LOG_SLOTS),
                MAX_LOG_BYTES as i64,
                FULL_CHUNK_BYTES as i64,
            ]
            .map(Arg::Integer),
        );
        for EncodedNote {
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
