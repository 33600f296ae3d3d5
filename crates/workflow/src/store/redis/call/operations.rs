//! What a change writes, as operations of a call.

use super::{Call, Command, ExpectedWrite, KeyClaim, Operation, Piece, StringWrite, share};
use crate::id::WorkflowId;
use crate::record::change::{self, Birth, Delete, Moved, Put, Trail};
use crate::record::rows::Row;
use crate::store::redis::keys::{self, Keys, META, Part, Set};
use crate::store::redis::pieces::trail::{self, TRAILED};

impl<'a> Call<'a> {
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
                .map(|&writer| Piece::Text(keys::owing_field(writer)));
            self.own(Command::RemoveFields, keys.part(*id, Part::State), marks);
        }
        if let Some(birth) = &put.birth {
            if !self.small && put.whole.is_none() {
                for (field, value) in keys::label_fields(&birth.label) {
                    self.field(Piece::Bytes(field), value);
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
                .flat_map(|row| [Piece::Bytes(b"0"), Piece::Bytes(row)]);
            share(&mut self.added[set as usize], self.counts.len(), rows);
        }
        self.move_row(Set::Timers, id, put.timer);
        self.move_row(Set::Expiries, id, put.expiry);
    }

    /// The fields of a state. What is behind one of many jobs may ask for its trail.
    fn fields_of(&mut self, put: &'a Put) {
        let fields = state_fields(put);
        self.bytes += fields.iter().map(Piece::len).sum::<usize>();
        self.fields.extend(fields);
        self.ask_for_trail(put);
    }

    fn ask_for_trail(&mut self, put: &Put) {
        if let Some(Trail {
            since: Some(since),
            jobs: jobs @ TRAILED..,
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

    /// Puts a state in place that was staged. The change is alone in its call.
    fn take_staged(&mut self, keys: &Keys, id: &WorkflowId, Trail { stamp, .. }: Trail) {
        debug_assert!(self.counts.is_empty());
        let key = Set::ALL.len() + 1 + self.others.len() + 1;
        self.others.push(keys.staged(*id, stamp.writer));
        self.fields.push(Piece::Integer(key as u64));
    }

    fn results(&mut self, keys: &Keys, id: &WorkflowId, put: &'a Put) {
        if !put.results.is_empty() {
            let result = |(field, value): &'a (_, Vec<u8>)| {
                [Piece::Text(keys::result_field(*field)), Piece::Bytes(value)]
            };
            self.own(
                Command::PutFields,
                keys.part(*id, Part::Results),
                put.results.iter().flat_map(result),
            );
        }
        if !put.dropped_results.is_empty() {
            let fields = put
                .dropped_results
                .iter()
                .map(|&field| Piece::Text(keys::result_field(field)));
            self.own(Command::RemoveFields, keys.part(*id, Part::Results), fields);
        }
    }

    /// Moves the workflow's row in a set ordered by time.
    fn move_row(&mut self, set: Set, id: &'a WorkflowId, moved: Moved) {
        let row = Piece::Bytes(id.bytes());
        let change = self.current();
        match moved {
            Moved::Unchanged => {}
            Moved::To(at) => share(
                &mut self.added[set as usize],
                change,
                [Piece::Integer(at.micros()), row],
            ),
            Moved::Away => share(&mut self.removed[set as usize], change, [row]),
        }
    }

    fn birth(&mut self, keys: &Keys, id: &'a WorkflowId, birth: &'a Birth) {
        self.string(keys.part(*id, Part::Graph), Piece::Bytes(&birth.graph));
        if let Some(name) = &birth.idempotency_key {
            self.claims.push(KeyClaim {
                change: self.current(),
                key: self.others.len(),
            });
            self.string(
                keys.idempotency(id.partition(), name),
                Piece::Text(id.to_string()),
            );
        }
    }

    pub(super) fn delete(&mut self, keys: &Keys, id: &'a WorkflowId, delete: &'a Delete) {
        // The script removes the state itself, after all else.
        let parts = [Part::Graph, Part::Results].map(|part| keys.part(*id, part));
        let claimed = delete
            .idempotency_key
            .as_ref()
            .map(|name| keys.idempotency(id.partition(), name));
        for key in parts.into_iter().chain(claimed) {
            self.own(Command::Remove, key, []);
        }
        self.remove_rows(Set::Ready, &delete.ready);
        self.remove_rows(Set::Index, &delete.index);
        for set in [Set::Timers, Set::Expiries] {
            share(
                &mut self.removed[set as usize],
                self.counts.len(),
                [Piece::Bytes(id.bytes())],
            );
        }
    }

    pub(super) fn string(&mut self, key: String, value: Piece<'a>) {
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
        self.fields.push(Piece::Bytes(value));
    }

    fn field(&mut self, name: Piece<'a>, value: &'a [u8]) {
        self.bytes += value.len();
        self.fields.extend([name, Piece::Bytes(value)]);
    }

    pub(super) fn own(
        &mut self,
        command: Command,
        key: String,
        pieces: impl IntoIterator<Item = Piece<'a>>,
    ) {
        let change = self.current();
        let own = &mut self.own[usize::from(command.removes())];
        let before = own.arguments.len();
        own.arguments.extend(pieces);
        let added = &own.arguments[before..];
        self.bytes += added.iter().map(Piece::len).sum::<usize>();
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
            rows.iter().map(|row| Piece::Bytes(row)),
        );
    }
}

/// The fields of a state that a change writes, but for the label: meta, jobs, the place in the trail of a large one, and whether rows follow.
pub(in crate::store::redis) fn state_fields(put: &Put) -> Vec<Piece<'_>> {
    let mut fields = Vec::with_capacity(2 * put.jobs.len() + 4);
    fields.extend([Piece::Bytes(META), Piece::Bytes(&put.meta)]);
    fields.extend(
        put.jobs
            .iter()
            .flat_map(|(job, state)| [Piece::Integer(job.0.into()), Piece::Bytes(state)]),
    );
    if let (Some(Trail { stamp, .. }), change::Rows::Follow) = (put.trail, put.rows) {
        fields.extend([
            Piece::Text(keys::owing_field(stamp.writer)),
            Piece::Bytes(b""),
        ]);
    }
    fields.extend(trail::entry(put).into_iter().flatten());
    fields
}
