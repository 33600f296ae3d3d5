//! Changes of one partition as calls of the script `apply.lua`, and its answers. The header of the script describes both.

pub(super) mod piece;

use hashbrown::HashSet;
use tidegate_pipeline::{Arg, Outcome, Reply, UnitBuilder};

pub(super) use self::piece::{Piece, pack};
use super::keys::{self, Keys, META, Part, Set};
use super::pieces::trail::{self, TRAILED};
use super::reply::{self, unexpected};
use crate::id::WorkflowId;
use crate::record::change::{
    self, Applied, Birth, Change, Delete, Moved, Put, Stamp, Trail, Write,
};
use crate::record::rows::Row;
use crate::store::error::StoreError;

/// The script.
pub(super) const SCRIPT: &str = include_str!("apply.lua");

/// The size at which a call takes no more changes. Redis runs nothing else during a call, and a larger call costs no less for
/// each change.
const MOST_ARGUMENTS: usize = 4_000;
const MOST_BYTES: usize = 512 << 10;
/// More changes than one call has mostly.
const MANY: usize = 128;

/// A row of the timers of each partition, at a time before all times, so that no read finds it. Redis keeps a set of up to 128 short rows as a list and
/// looks at each of them for one that comes or goes. With this row it is a tree from the start.
const LONG_ROW: &[u8] = b"longer than 64 bytes, so that Redis does not look at all rows for one";

/// The operations of the script, by their number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Command {
    PutFields = 1,
    RemoveFields = 2,
    Remove = 3,
    AddRows = 4,
    RemoveRows = 5,
}

impl Command {
    fn removes(self) -> bool {
        matches!(self, Self::RemoveFields | Self::Remove | Self::RemoveRows)
    }
}

/// A write of one change.
#[derive(Debug)]
struct Operation {
    change: usize,
    command: Command,
    /// Its key, as a position among the keys after those of the states.
    key: usize,
    arguments: usize,
}

/// Writes of single changes, with their arguments.
#[derive(Debug, Default)]
struct Own<'a> {
    operations: Vec<Operation>,
    arguments: Vec<Piece<'a>>,
}

/// A write that several changes share: rows to add to a set, or to remove.
#[derive(Debug, Default)]
struct Rows<'a> {
    pieces: Vec<Piece<'a>>,
    /// The changes that take part in it, each with its number of arguments.
    shares: Vec<(usize, usize)>,
}

/// One call of the script.
#[derive(Debug, Default)]
pub(super) struct Call<'a> {
    /// Whether all states are those of small workflows, or none is.
    small: bool,
    /// Whether what is expected of a state is a field that it has.
    marked: bool,
    /// Which of all changes these are.
    places: Vec<usize>,
    expected: Vec<&'a [u8]>,
    states: Vec<String>,
    /// For each change, how many of `fields` are its own.
    counts: Vec<usize>,
    fields: Vec<Piece<'a>>,
    /// Strings to write: the change, the key as a position among the others, and the value.
    strings: Vec<(usize, usize, Piece<'a>)>,
    /// Keys after those of the states.
    others: Vec<String>,
    /// Changes, and which of the other keys each needs to be free.
    claims: Vec<(usize, usize)>,
    /// Changes, which write made the state that each expects, and how many writes its trail has.
    since: Vec<(usize, Stamp, u64)>,
    /// What adds, and what removes.
    own: [Own<'a>; 2],
    /// By set, in the order of the keys.
    removed: [Rows<'a>; Set::ALL.len()],
    added: [Rows<'a>; Set::ALL.len()],
    bytes: usize,
    /// The command that tells other servers about it, the channel and the message.
    announcement: Option<(&'static str, String, Vec<u8>)>,
    workflows: HashSet<WorkflowId>,
    idempotency_keys: HashSet<&'a str>,
}

/// Divides changes into calls. A call never has two changes of the same workflow or idempotency key, because the script checks all
/// changes before it writes.
pub(super) fn calls<'a>(keys: &Keys, changes: &'a [Change]) -> Vec<Call<'a>> {
    let mut calls: Vec<Call<'a>> = Vec::new();
    for small in [true, false] {
        for (place, change) in changes
            .iter()
            .enumerate()
            .filter(|(_, change)| change.small == small)
        {
            if !calls.last().is_some_and(|call| call.has_room_for(change)) {
                calls.push(Call::with_room_for(small, changes.len()));
            }
            calls
                .last_mut()
                .expect("there is one with room")
                .add(keys, (place, change));
        }
    }
    calls.iter_mut().for_each(Call::ask_for_room);
    calls
}

/// The idempotency key that a change takes or releases.
fn idempotency_key(change: &Change) -> Option<&str> {
    match &change.write {
        Write::Put(put) => put.birth.as_ref()?.idempotency_key.as_deref(),
        Write::Delete(delete) => delete.idempotency_key.as_deref(),
    }
}

impl<'a> Call<'a> {
    /// For so many changes, or many of them.
    fn with_room_for(small: bool, changes: usize) -> Self {
        let most = changes.min(MANY);
        let (places, expected, fields) = (
            Vec::with_capacity(most),
            Vec::with_capacity(most),
            Vec::with_capacity(most),
        );
        let (states, counts, workflows) = (
            Vec::with_capacity(most),
            Vec::with_capacity(most),
            HashSet::with_capacity(most),
        );
        Self {
            small,
            places,
            expected,
            states,
            counts,
            fields,
            workflows,
            ..Self::default()
        }
    }

    /// How many arguments its states, strings and operations have.
    fn arguments(&self) -> usize {
        let rows = self
            .removed
            .iter()
            .chain(&self.added)
            .map(|rows| rows.pieces.len());
        let own = self.own.iter().map(|own| own.arguments.len());
        self.fields.len() + self.strings.len() + own.chain(rows).sum::<usize>()
    }

    fn has_room_for(&self, change: &Change) -> bool {
        self.small == change.small
            && self.arguments() < MOST_ARGUMENTS
            && self.bytes < MOST_BYTES
            && !self.workflows.contains(&change.workflow)
            && idempotency_key(change).is_none_or(|key| !self.idempotency_keys.contains(key))
    }

    fn add(&mut self, keys: &Keys, (place, change): (usize, &'a Change)) {
        self.places.push(place);
        let id = &change.workflow;
        self.workflows.insert(*id);
        self.idempotency_keys.extend(idempotency_key(change));
        self.expected
            .push(change.expected.as_deref().unwrap_or_default());
        self.states
            .push(keys.part(*id, if self.small { Part::Small } else { Part::State }));
        let before = self.fields.len();
        match &change.write {
            Write::Put(put) => self.put(keys, id, put),
            Write::Delete(delete) => self.delete(keys, id, delete),
        }
        self.counts.push(self.fields.len() - before);
    }

    /// A call that only adds rows to a set and removes some, if a state has this field; without one, if there is no such state.
    pub(super) fn of_rows(
        (state, mark): (&str, &'a str),
        set: Set,
        (add, remove): (&'a [Row], &'a [Row]),
    ) -> Self {
        let (expected, states, marked) = (
            vec![mark.as_bytes()],
            vec![state.to_owned()],
            !mark.is_empty(),
        );
        let mut call = Self {
            expected,
            states,
            marked,
            places: vec![0],
            ..Self::default()
        };
        let rows = add
            .iter()
            .flat_map(|row| [Piece::Bytes(b"0"), Piece::Bytes(row)]);
        share(&mut call.added[set as usize], 0, rows);
        share(
            &mut call.removed[set as usize],
            0,
            remove.iter().map(|row| Piece::Bytes(row)),
        );
        call.counts.push(0);
        call
    }

    /// A call that does whatever calls do, and changes nothing: each command of the script with scratch keys, and those for rows with
    /// each set and a row that is in none.
    pub(super) fn probe(scratch: [String; 2]) -> Self {
        let [hash, string] = scratch;
        let mut call = Self {
            expected: vec![b""],
            states: vec![hash.clone()],
            places: vec![0],
            ..Self::default()
        };
        let nothing = || Piece::Bytes(b"");
        call.claims.push((0, 0));
        call.string(string.clone(), nothing());
        call.own(
            Command::PutFields,
            hash.clone(),
            [Piece::Bytes(META), nothing()],
        );
        call.own(Command::Remove, hash.clone(), []);
        call.own(Command::Remove, string, []);
        call.own(Command::RemoveFields, hash.clone(), [Piece::Bytes(META)]);
        // As if it had been staged: the hash takes its own place.
        call.fields.push(Piece::Integer(
            (Set::ALL.len() + 2 + call.others.len()) as u64,
        ));
        call.others.push(hash);
        for set in Set::ALL {
            share(
                &mut call.added[set as usize],
                0,
                [Piece::Bytes(b"XX"), Piece::Integer(0), nothing()],
            );
            share(&mut call.removed[set as usize], 0, [nothing()]);
        }
        call.counts.push(1);
        call
    }

    /// A call that removes rows, changes states and adds nothing begins with a question for room that adds nothing: Redis asks for memory at
    /// the first write of a script only, and the question whether rows may be removed is one.
    fn ask_for_room(&mut self) {
        let own = !self.own[0].operations.is_empty() || !self.strings.is_empty();
        let adds = own || self.added.iter().any(|rows| !rows.pieces.is_empty());
        let removes = self.removed.iter().any(|rows| !rows.pieces.is_empty());
        if let (false, true, Some(change)) = (
            adds,
            removes,
            self.counts.iter().position(|&fields| fields > 0),
        ) {
            let nothing = [Piece::Bytes(b"XX"), Piece::Integer(0), Piece::Bytes(b"")];
            share(&mut self.added[Set::Timers as usize], change, nothing);
        }
    }

    /// Adds the long row to the timers, if it adds timers at all. Returns whether it does.
    pub(super) fn lengthen_timers(&mut self) -> bool {
        let timers = &mut self.added[Set::Timers as usize];
        let Some(&(change, _)) = timers.shares.last() else {
            return false;
        };
        share(
            timers,
            change,
            [Piece::Bytes(b"-1"), Piece::Bytes(LONG_ROW)],
        );
        true
    }

    /// How many changes it has.
    pub(super) fn len(&self) -> usize {
        self.states.len()
    }

    /// Other servers are told `message` by `command`, on `channel`.
    pub(super) fn announce(&mut self, command: &'static str, channel: String, message: Vec<u8>) {
        self.announcement = Some((command, channel, message));
    }

    /// The number of the change that is being added.
    fn current(&self) -> usize {
        self.counts.len()
    }

    fn put(&mut self, keys: &Keys, id: &'a WorkflowId, put: &'a Put) {
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
            self.since
                .push((self.current(), since, trail::length(jobs)));
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
        let (row, change) = (Piece::Bytes(id.bytes()), self.counts.len());
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
            self.claims.push((self.current(), self.others.len()));
            self.string(
                keys.idempotency(id.partition(), name),
                Piece::Text(id.to_string()),
            );
        }
    }

    fn delete(&mut self, keys: &Keys, id: &'a WorkflowId, delete: &'a Delete) {
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

    fn string(&mut self, key: String, value: Piece<'a>) {
        self.bytes += value.len();
        self.strings
            .push((self.current(), self.others.len(), value));
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

    fn own(&mut self, command: Command, key: String, pieces: impl IntoIterator<Item = Piece<'a>>) {
        let (change, key_at) = (self.current(), self.others.len());
        let own = &mut self.own[usize::from(command.removes())];
        let before = own.arguments.len();
        own.arguments.extend(pieces);
        let added = &own.arguments[before..];
        self.bytes += added.iter().map(Piece::len).sum::<usize>();
        own.operations.push(Operation {
            change,
            command,
            key: key_at,
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

    /// The writes of rows that changes have in common, in the order of their arguments: key and rows.
    fn rows(&self, command: Command) -> impl Iterator<Item = (usize, &Rows<'a>)> {
        let sets = if command.removes() {
            &self.removed
        } else {
            &self.added
        };
        sets.iter()
            .enumerate()
            .filter(|(_, rows)| !rows.pieces.is_empty())
    }

    /// The two packed arguments.
    fn plans(&self) -> [Vec<u8>; 2] {
        let other = |key: usize| Set::ALL.len() + self.states.len() + key + 1;
        let (mut together, mut one_by_one) = (Vec::with_capacity(32), Vec::with_capacity(32));
        let mut adds = [0; 2];
        let [adding, removing] = &self.own;
        for (own, command) in [(adding, Command::AddRows), (removing, Command::RemoveRows)] {
            for own in &own.operations {
                let operation = [own.command as usize, other(own.key), own.arguments];
                together.extend(operation);
                one_by_one.extend(operation.into_iter().chain([own.change + 1]));
            }
            for (set, rows) in self.rows(command) {
                together.extend([command as usize, set + 1, rows.pieces.len()]);
                let shares = rows.shares.iter();
                one_by_one.extend(
                    shares.flat_map(|&(change, count)| {
                        [command as usize, set + 1, count, change + 1]
                    }),
                );
            }
            if command == Command::AddRows {
                adds = [together.len() / 3, one_by_one.len() / 4];
            }
        }
        let mut head = Vec::with_capacity(
            6 + 2 * (self.claims.len() + self.strings.len()) + self.counts.len() + together.len(),
        );
        let kind = if self.marked {
            2
        } else {
            usize::from(self.small)
        };
        head.extend([
            self.states.len(),
            kind,
            self.claims.len(),
            self.strings.len(),
        ]);
        head.extend([adds[0], together.len() / 3]);
        head.extend(
            self.claims
                .iter()
                .flat_map(|&(change, key)| [change + 1, other(key)]),
        );
        head.extend(
            self.strings
                .iter()
                .flat_map(|&(change, key, _)| [change + 1, other(key)]),
        );
        head.extend(&self.counts);
        head.append(&mut together);
        let mut refused = vec![adds[1], one_by_one.len() / 4, self.since.len()];
        refused.append(&mut one_by_one);
        for &(change, Stamp { version, writer }, length) in &self.since {
            refused.extend([
                change + 1,
                version as usize,
                writer as usize,
                length as usize,
            ]);
        }
        [pack(&head), pack(&refused)]
    }

    /// Adds the call to a unit. `script` is what `command` knows the script by; `sets` are the keys of the partition's sets.
    pub(super) fn append<'u>(
        &self,
        unit: UnitBuilder<'u>,
        command: &'static str,
        script: &[u8],
        sets: &[String; Set::ALL.len()],
    ) -> UnitBuilder<'u> {
        let plans = self.plans();
        let number = sets.len() + self.states.len() + self.others.len();
        let mut args = Vec::with_capacity(7 + number + self.expected.len() + self.arguments());
        args.extend([Arg::Bytes(script), Arg::Integer(number as i64)]);
        for keys in [sets, &self.states[..], &self.others] {
            args.extend(keys.iter().map(|key| Arg::Key(key.as_bytes())));
        }
        args.extend(plans.iter().map(|plan| Arg::Bytes(plan)));
        args.extend(self.expected.iter().map(|meta| Arg::Bytes(meta)));
        args.extend(self.fields.iter().map(Piece::arg));
        args.extend(self.strings.iter().map(|(_, _, value)| value.arg()));
        for (own, command) in self.own.iter().zip([Command::AddRows, Command::RemoveRows]) {
            args.extend(own.arguments.iter().map(Piece::arg));
            self.rows(command)
                .for_each(|(_, rows)| args.extend(rows.pieces.iter().map(Piece::arg)));
        }
        if let Some((command, channel, message)) = &self.announcement {
            args.extend([command.as_bytes(), channel.as_bytes(), message].map(Arg::Bytes));
        }
        unit.command(command, &args)
    }

    /// What became of each change, with its place among all changes.
    pub(super) fn answer(&self, answer: &Reply) -> Result<Vec<(usize, Applied)>, StoreError> {
        match answer {
            Reply::Integer(_) => Ok(self
                .places
                .iter()
                .map(|&place| (place, Applied::Done))
                .collect()),
            Reply::Array(each) if each.len() == self.states.len() => {
                let each = each.iter().zip(&self.states).zip(&self.places);
                each.map(|((one, key), &place)| {
                    Ok((place, self.answer_one(key, one.as_ref().ok(), answer)?))
                })
                .collect()
            }
            _ => Err(unexpected("what became of the changes", answer)),
        }
    }

    fn answer_one(
        &self,
        key: &str,
        one: Option<&Reply>,
        answer: &Reply,
    ) -> Result<Applied, StoreError> {
        match one {
            Some(Reply::Integer(0)) => Ok(Applied::Done),
            Some(Reply::Integer(_)) => Ok(Applied::Elsewhere),
            Some(Reply::Bulk(id)) => Ok(Applied::KeyTaken(reply::id(id)?)),
            Some(Reply::Array(later)) if matches!(later.first(), Some(Ok(Reply::Integer(_)))) => {
                Ok(Applied::Behind(reply::later(key, later)?))
            }
            Some(state @ Reply::Array(_)) if self.small => {
                Ok(Applied::Conflict(reply::small_in_array(state)?))
            }
            Some(state @ Reply::Array(_)) => Ok(Applied::Conflict(reply::state(key, state)?)),
            _ => Err(unexpected("what became of each change", answer)),
        }
    }
}

/// The fields of a state that a change writes, but for the label: meta, jobs, the place in the trail of a large one, and whether rows follow.
pub(super) fn state_fields(put: &Put) -> Vec<Piece<'_>> {
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

/// What is added to the number of changes when others were not told of them.
const NOT_TOLD: u64 = 1 << 20;

/// Whether Redis did not let a call tell others of what it wrote.
pub(super) fn was_not_told(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Reply(Reply::Integer(number)) if number.unsigned_abs() >= NOT_TOLD)
}

/// Whether a call that created workflows found none in its partition.
pub(super) fn was_empty(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Reply(Reply::Integer(..0)))
}

fn share<'a>(rows: &mut Rows<'a>, change: usize, pieces: impl IntoIterator<Item = Piece<'a>>) {
    let before = rows.pieces.len();
    rows.pieces.extend(pieces);
    let count = rows.pieces.len() - before;
    rows.shares.extend((count > 0).then_some((change, count)));
}
