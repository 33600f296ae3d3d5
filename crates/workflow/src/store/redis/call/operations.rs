//! Translates the writes of a change into operations of a call.

use super::{
    ExpectedWrite, KeyClaim, Opcode, Operation, ScriptArg, ScriptCall, StringWrite, share,
};
use crate::codec::change::{self, CreationRecord, Delete, Put, TimerMove, TrailEntry};
use crate::codec::rows::Row;
use crate::id::WorkflowId;
use crate::store::redis::chunked::trail::{self, MIN_TRAIL_JOBS};
use crate::store::redis::keys::{self, Keys, META, Part, Set};

impl<'a> ScriptCall<'a> {
    pub(super) fn put(&mut self, keys: &Keys, id: &'a WorkflowId, put: &'a Put) {
        match put.trail {
            Some(trail) if put.whole.is_some() => self.take_staged(keys, id, trail),
            _ if self.small => self.value(&put.meta),
            _ => self.fields_of(put),
        }
        if !put.settled.is_empty() {
            let marks = put
                .settled
                .iter()
                .map(|&writer| ScriptArg::Text(keys::owing_field(writer)));
            self.own(Opcode::RemoveFields, keys.part(*id, Part::State), marks);
        }
        if let Some(birth) = &put.birth {
            if !self.small && put.whole.is_none() {
                for (field, value) in keys::label_fields(&birth.label) {
                    self.field(ScriptArg::Bytes(field), value);
                }
            }
            self.birth(keys, id, birth);
        }
        self.results(keys, id, put);
        for (set, change) in [(Set::Ready, &put.ready), (Set::Index, &put.index)] {
            self.remove_rows(set, &change.remove);
            // All rows have score 0 and sort by their bytes.
            let rows = change
                .add
                .iter()
                .flat_map(|row| [ScriptArg::Bytes(b"0"), ScriptArg::Bytes(row)]);
            share(&mut self.added[set as usize], self.counts.len(), rows);
        }
        self.move_row(Set::Timers, id, put.timer);
        self.move_row(Set::Expiries, id, put.expiry);
    }

    /// Adds the fields of a state. If the workflow has many jobs, a refused change gets the newer
    /// fields by the trail.
    fn fields_of(&mut self, put: &'a Put) {
        let fields = state_fields(put);
        self.bytes += fields.iter().map(ScriptArg::len).sum::<usize>();
        self.fields.extend(fields);
        self.ask_for_trail(put);
    }

    fn ask_for_trail(&mut self, put: &Put) {
        if let Some(TrailEntry {
            since: Some(since),
            jobs: jobs @ MIN_TRAIL_JOBS..,
            ..
        }) = put.trail
            && u32::try_from(since.version).is_ok()
        {
            self.since.push(ExpectedWrite {
                change: self.current(),
                stamp: since,
                trail_length: trail::length(jobs),
            });
        }
    }

    /// Moves a staged state to its key. The change is alone in its call.
    fn take_staged(&mut self, keys: &Keys, id: &WorkflowId, TrailEntry { stamp, .. }: TrailEntry) {
        debug_assert!(self.counts.is_empty());
        let key = Set::ALL.len() + 1 + self.others.len() + 1;
        self.others.push(keys.staged(*id, stamp.writer));
        self.fields.push(ScriptArg::Integer(key as u64));
    }

    fn results(&mut self, keys: &Keys, id: &WorkflowId, put: &'a Put) {
        if !put.results.is_empty() {
            let result = |(field, value): &'a (_, Vec<u8>)| {
                [
                    ScriptArg::Text(keys::result_field(*field)),
                    ScriptArg::Bytes(value),
                ]
            };
            self.own(
                Opcode::PutFields,
                keys.part(*id, Part::Results),
                put.results.iter().flat_map(result),
            );
        }
        if !put.dropped_results.is_empty() {
            let fields = put
                .dropped_results
                .iter()
                .map(|&field| ScriptArg::Text(keys::result_field(field)));
            self.own(Opcode::RemoveFields, keys.part(*id, Part::Results), fields);
        }
    }

    /// Moves the workflow's row in a set ordered by time.
    fn move_row(&mut self, set: Set, id: &'a WorkflowId, moved: TimerMove) {
        let row = ScriptArg::Bytes(id.bytes());
        let change = self.current();
        match moved {
            TimerMove::Unchanged => {}
            TimerMove::To(at) => share(
                &mut self.added[set as usize],
                change,
                [ScriptArg::Integer(at.micros()), row],
            ),
            TimerMove::Away => share(&mut self.removed[set as usize], change, [row]),
        }
    }

    fn birth(&mut self, keys: &Keys, id: &'a WorkflowId, birth: &'a CreationRecord) {
        self.string(keys.part(*id, Part::Graph), ScriptArg::Bytes(&birth.graph));
        if let Some(name) = &birth.idempotency_key {
            self.claims.push(KeyClaim {
                change: self.current(),
                key: self.others.len(),
            });
            self.string(
                keys.idempotency(id.partition(), name),
                ScriptArg::Text(id.to_string()),
            );
        }
    }

    pub(super) fn delete(&mut self, keys: &Keys, id: &'a WorkflowId, delete: &'a Delete) {
        // The script removes the state itself, last.
        let parts = [Part::Graph, Part::Results].map(|part| keys.part(*id, part));
        let claimed = delete
            .idempotency_key
            .as_ref()
            .map(|name| keys.idempotency(id.partition(), name));
        for key in parts.into_iter().chain(claimed) {
            self.own(Opcode::Remove, key, []);
        }
        self.remove_rows(Set::Ready, &delete.ready);
        self.remove_rows(Set::Index, &delete.index);
        for set in [Set::Timers, Set::Expiries] {
            share(
                &mut self.removed[set as usize],
                self.counts.len(),
                [ScriptArg::Bytes(id.bytes())],
            );
        }
    }

    pub(super) fn string(&mut self, key: String, value: ScriptArg<'a>) {
        self.bytes += value.len();
        self.strings.push(StringWrite {
            change: self.current(),
            key: self.others.len(),
            value,
        });
        self.others.push(key);
    }

    fn value(&mut self, value: &'a [u8]) {
        self.bytes += value.len();
        self.fields.push(ScriptArg::Bytes(value));
    }

    fn field(&mut self, name: ScriptArg<'a>, value: &'a [u8]) {
        self.bytes += value.len();
        self.fields.extend([name, ScriptArg::Bytes(value)]);
    }

    pub(super) fn own(
        &mut self,
        command: Opcode,
        key: String,
        pieces: impl IntoIterator<Item = ScriptArg<'a>>,
    ) {
        let change = self.current();
        let own = &mut self.own[usize::from(command.removes())];
        let before = own.arguments.len();
        own.arguments.extend(pieces);
        let added = &own.arguments[before..];
        self.bytes += added.iter().map(ScriptArg::len).sum::<usize>();
        own.operations.push(Operation {
            change,
            command,
            key: self.others.len(),
            arguments: added.len(),
        });
        self.others.push(key);
    }

    fn remove_rows(&mut self, set: Set, rows: &'a [Row]) {
        share(
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
    if let (Some(TrailEntry { stamp, .. }), change::Rows::Follow) = (put.trail, put.rows) {
        fields.extend([
            ScriptArg::Text(keys::owing_field(stamp.writer)),
            ScriptArg::Bytes(b""),
        ]);
    }
    fields.extend(trail::trail_field(put).into_iter().flatten());
    fields
}
