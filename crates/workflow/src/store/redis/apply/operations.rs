//! Translates the writes of a change into operations of a call.

use super::chunked::trail::{self, MIN_TRAIL_JOBS};
use super::{
    ExpectedWrite, KeyClaim, Opcode, Operation, ScriptArg, ScriptCall, StringWrite, add_shared,
};
use crate::codec::change;
use crate::codec::{CreationRecord, Delete, Put, Row, TimerMove, TrailEntry};
use crate::model::WorkflowId;
use crate::store::redis::keys::{self, Keys, META, Set, WorkflowKey};

impl<'a> ScriptCall<'a> {
    pub(super) fn put(&mut self, keys: &Keys, id: &'a WorkflowId, put: &'a Put) {
        match put.trail {
            Some(trail) if put.rewrite_label.is_some() => self.use_staged(keys, id, trail),
            _ if self.small => self.add_value(&put.meta),
            _ => self.add_state_fields(put),
        }
        if !put.completed_row_writers.is_empty() {
            let marks = put
                .completed_row_writers
                .iter()
                .map(|&writer| ScriptArg::Text(keys::missing_rows_field(writer)));
            self.add_single(
                Opcode::RemoveFields,
                keys.workflow_key(*id, WorkflowKey::State),
                marks,
            );
        }
        if let Some(birth) = &put.creation {
            if !self.small && put.rewrite_label.is_none() {
                for (field, value) in keys::label_fields(&birth.label) {
                    self.add_field(ScriptArg::Bytes(field), value);
                }
            }
            self.create(keys, id, birth);
        }
        self.add_results(keys, id, put);
        for (set, change) in [(Set::Ready, &put.ready), (Set::Index, &put.index)] {
            self.remove_rows(set, &change.remove);
            // All rows have score 0 and sort by their bytes.
            let rows = change
                .add
                .iter()
                .flat_map(|row| [ScriptArg::Bytes(b"0"), ScriptArg::Bytes(row)]);
            add_shared(&mut self.added[set as usize], self.counts.len(), rows);
        }
        self.move_row(Set::Timers, id, put.timer);
        self.move_row(Set::Expiries, id, put.expiry);
    }

    /// Adds the fields of a state. If the workflow has many jobs, a refused change gets the newer
    /// fields by the trail.
    fn add_state_fields(&mut self, put: &'a Put) {
        let fields = state_fields(put);
        self.bytes += fields.iter().map(ScriptArg::len).sum::<usize>();
        self.fields.extend(fields);
        self.request_trail(put);
    }

    fn request_trail(&mut self, put: &Put) {
        if let Some(TrailEntry {
            base: Some(since),
            job_count: jobs @ MIN_TRAIL_JOBS..,
            ..
        }) = put.trail
            && u32::try_from(since.version).is_ok()
        {
            self.expected_writes.push(ExpectedWrite {
                change: self.current_change(),
                stamp: since,
                trail_length: trail::trail_length(jobs),
            });
        }
    }

    /// Moves a staged state to its key. The change is alone in its call.
    fn use_staged(&mut self, keys: &Keys, id: &WorkflowId, TrailEntry { stamp, .. }: TrailEntry) {
        debug_assert!(self.counts.is_empty());
        let key = Set::ALL.len() + 1 + self.other_keys.len() + 1;
        self.other_keys.push(keys.staged(*id, stamp.writer));
        self.fields.push(ScriptArg::Integer(key as u64));
    }

    fn add_results(&mut self, keys: &Keys, id: &WorkflowId, put: &'a Put) {
        if !put.results.is_empty() {
            let result = |(field, value): &'a (_, Vec<u8>)| {
                [
                    ScriptArg::Text(keys::result_field(*field)),
                    ScriptArg::Bytes(value),
                ]
            };
            self.add_single(
                Opcode::PutFields,
                keys.workflow_key(*id, WorkflowKey::Results),
                put.results.iter().flat_map(result),
            );
        }
        if !put.dropped_results.is_empty() {
            let fields = put
                .dropped_results
                .iter()
                .map(|&field| ScriptArg::Text(keys::result_field(field)));
            self.add_single(
                Opcode::RemoveFields,
                keys.workflow_key(*id, WorkflowKey::Results),
                fields,
            );
        }
    }

    /// Moves the workflow's row in a set ordered by time.
    fn move_row(&mut self, set: Set, id: &'a WorkflowId, moved: TimerMove) {
        let row = ScriptArg::Bytes(id.bytes());
        let change = self.current_change();
        match moved {
            TimerMove::Unchanged => {}
            TimerMove::To(at) => add_shared(
                &mut self.added[set as usize],
                change,
                [ScriptArg::Integer(at.micros()), row],
            ),
            TimerMove::Remove => add_shared(&mut self.removed[set as usize], change, [row]),
        }
    }

    fn create(&mut self, keys: &Keys, id: &'a WorkflowId, birth: &'a CreationRecord) {
        self.add_string(
            keys.workflow_key(*id, WorkflowKey::Graph),
            ScriptArg::Bytes(&birth.graph),
        );
        if let Some(name) = &birth.idempotency_key {
            self.claims.push(KeyClaim {
                change: self.current_change(),
                key: self.other_keys.len(),
            });
            self.add_string(
                keys.idempotency(id.partition(), name),
                ScriptArg::Text(id.to_string()),
            );
        }
    }

    pub(super) fn delete(&mut self, keys: &Keys, id: &'a WorkflowId, delete: &'a Delete) {
        // The script removes the state itself, last.
        let parts =
            [WorkflowKey::Graph, WorkflowKey::Results].map(|part| keys.workflow_key(*id, part));
        for key in parts {
            self.add_single(Opcode::Remove, key, []);
        }
        if let Some(name) = &delete.idempotency_key {
            // Another workflow may have claimed the key, if the claim of this one was refused.
            let key = keys.idempotency(id.partition(), name);
            self.add_single(Opcode::Remove, key, [ScriptArg::Text(id.to_string())]);
        }
        self.remove_rows(Set::Ready, &delete.ready);
        self.remove_rows(Set::Index, &delete.index);
        for set in [Set::Timers, Set::Expiries] {
            add_shared(
                &mut self.removed[set as usize],
                self.counts.len(),
                [ScriptArg::Bytes(id.bytes())],
            );
        }
    }

    pub(super) fn add_string(&mut self, key: String, value: ScriptArg<'a>) {
        self.bytes += value.len();
        self.strings.push(StringWrite {
            change: self.current_change(),
            key: self.other_keys.len(),
            value,
        });
        self.other_keys.push(key);
    }

    fn add_value(&mut self, value: &'a [u8]) {
        self.bytes += value.len();
        self.fields.push(ScriptArg::Bytes(value));
    }

    fn add_field(&mut self, name: ScriptArg<'a>, value: &'a [u8]) {
        self.bytes += value.len();
        self.fields.extend([name, ScriptArg::Bytes(value)]);
    }

    pub(super) fn add_single(
        &mut self,
        command: Opcode,
        key: String,
        arguments: impl IntoIterator<Item = ScriptArg<'a>>,
    ) {
        let change = self.current_change();
        let single = &mut self.single_writes[usize::from(command.removes())];
        let before = single.arguments.len();
        single.arguments.extend(arguments);
        let added = &single.arguments[before..];
        self.bytes += added.iter().map(ScriptArg::len).sum::<usize>();
        single.operations.push(Operation {
            change,
            command,
            key: self.other_keys.len(),
            arguments: added.len(),
        });
        self.other_keys.push(key);
    }

    fn remove_rows(&mut self, set: Set, rows: &'a [Row]) {
        add_shared(
            &mut self.removed[set as usize],
            self.counts.len(),
            rows.iter().map(|row| ScriptArg::Bytes(row)),
        );
    }
}

/// The fields of a state that a change writes, except the label: meta, jobs, the trail of a large
/// workflow, and the mark that rows follow.
pub(in crate::store::redis) fn state_fields(put: &Put) -> Vec<ScriptArg<'_>> {
    let mut fields = Vec::with_capacity(2 * put.jobs.len() + 4);
    fields.extend([ScriptArg::Bytes(META), ScriptArg::Bytes(&put.meta)]);
    fields.extend(
        put.jobs
            .iter()
            .flat_map(|(job, state)| [ScriptArg::Integer(job.0.into()), ScriptArg::Bytes(state)]),
    );
    if let (Some(TrailEntry { stamp, .. }), change::RowTiming::AfterState) =
        (put.trail, put.row_timing)
    {
        fields.extend([
            ScriptArg::Text(keys::missing_rows_field(stamp.writer)),
            ScriptArg::Bytes(b""),
        ]);
    }
    fields.extend(trail::trail_field(put).into_iter().flatten());
    fields
}
