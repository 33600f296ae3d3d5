//! Changes of one partition as calls of the script `apply.lua`, whose header describes the
//! arguments and answers.

mod answer;
mod arguments;
mod operations;
pub(super) mod piece;

use hashbrown::HashSet;

pub(super) use self::answer::{was_empty, was_not_told};
pub(super) use self::operations::state_fields;
pub(super) use self::piece::{ScriptArg, pack};
use super::keys::{Keys, META, Part, Set};
use crate::codec::change::{Change, Stamp, Write};
use crate::codec::rows::Row;
use crate::id::WorkflowId;

/// The script that applies changes.
pub(super) const SCRIPT: &str = include_str!("apply.lua");

/// Arguments and bytes at which a call takes no more changes. Redis runs nothing else during a
/// call, and larger calls cost no less per change.
const MOST_ARGUMENTS: usize = 4_000;
const MOST_BYTES: usize = 512 << 10;
/// Capacity reserved for a call: more changes than most calls have.
const MANY: usize = 128;

/// A long row in the timers of each partition. Its score is lower than any time, so no read returns
/// it. Redis keeps a set of up to 128 short rows as a list, which it scans for each insertion and
/// removal. This row makes it a tree from the start.
const LONG_ROW: &[u8] = b"longer than 64 bytes, so that Redis does not look at all rows for one";

/// The operations of the script, with their numbers there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Opcode {
    PutFields = 1,
    RemoveFields = 2,
    Remove = 3,
    AddRows = 4,
    RemoveRows = 5,
}

impl Opcode {
    fn removes(self) -> bool {
        matches!(self, Self::RemoveFields | Self::Remove | Self::RemoveRows)
    }
}

/// An operation of one change.
#[derive(Debug)]
struct Operation {
    change: usize,
    command: Opcode,
    /// Its key, as a position among the keys after those of the states.
    key: usize,
    arguments: usize,
}

/// A string to write.
#[derive(Debug)]
struct StringWrite<'a> {
    change: usize,
    /// Its key, as a position among the keys after those of the states.
    key: usize,
    value: ScriptArg<'a>,
}

/// A change that requires a key that does not exist.
#[derive(Debug)]
struct KeyClaim {
    change: usize,
    /// The key, as a position among the keys after those of the states.
    key: usize,
}

/// The write that made the state which a change expects.
#[derive(Debug)]
struct ExpectedWrite {
    change: usize,
    stamp: Stamp,
    /// Number of writes in the trail of the state.
    trail_length: u64,
}

/// The command by which a call publishes a message to other servers.
#[derive(Debug)]
struct AnnounceCommand {
    command: &'static str,
    channel: String,
    bytes: Vec<u8>,
}

/// Operations of single changes, with their arguments.
#[derive(Debug, Default)]
struct SingleWrites<'a> {
    operations: Vec<Operation>,
    arguments: Vec<ScriptArg<'a>>,
}

/// One operation for several changes: rows to add to a set, or to remove from it.
#[derive(Debug, Default)]
struct Rows<'a> {
    pieces: Vec<ScriptArg<'a>>,
    /// The changes that take part in the operation, each with its number of arguments.
    shares: Vec<(usize, usize)>,
}

/// One call of the script.
#[derive(Debug, Default)]
pub(super) struct ScriptCall<'a> {
    /// Whether the states are those of small workflows. All states of a call are of one kind.
    small: bool,
    /// Whether the state must have a field, instead of an expected meta.
    marked: bool,
    /// Positions of the changes of this call among all changes.
    places: Vec<usize>,
    expected: Vec<&'a [u8]>,
    states: Vec<String>,
    /// Number of `fields` of each change.
    counts: Vec<usize>,
    fields: Vec<ScriptArg<'a>>,
    strings: Vec<StringWrite<'a>>,
    /// Keys after those of the states.
    others: Vec<String>,
    claims: Vec<KeyClaim>,
    since: Vec<ExpectedWrite>,
    /// Operations that add, and operations that remove.
    own: [SingleWrites<'a>; 2],
    /// Rows of each set, in the order of the keys.
    removed: [Rows<'a>; Set::ALL.len()],
    added: [Rows<'a>; Set::ALL.len()],
    bytes: usize,
    announcement: Option<AnnounceCommand>,
    workflows: HashSet<WorkflowId>,
    idempotency_keys: HashSet<&'a str>,
}

/// Divides changes into calls. A call never has two changes of one workflow or of one idempotency
/// key, because the script checks all changes before it writes.
pub(super) fn calls<'a>(keys: &Keys, changes: &'a [Change]) -> Vec<ScriptCall<'a>> {
    let mut calls: Vec<ScriptCall<'a>> = Vec::new();
    for small in [true, false] {
        let each = changes.iter().enumerate();
        for (place, change) in each.filter(|(_, change)| change.small == small) {
            if !calls.last().is_some_and(|call| call.has_room_for(change)) {
                calls.push(ScriptCall::with_room_for(small, changes.len()));
            }
            let call = calls.last_mut().expect("there is one with room");
            call.add(keys, place, change);
        }
    }
    calls.iter_mut().for_each(ScriptCall::ask_for_room);
    calls
}

/// The idempotency key that a change claims or releases.
fn idempotency_key(change: &Change) -> Option<&str> {
    match &change.write {
        Write::Put(put) => put.birth.as_ref()?.idempotency_key.as_deref(),
        Write::Delete(delete) => delete.idempotency_key.as_deref(),
    }
}

impl<'a> ScriptCall<'a> {
    /// An empty call with capacity for the given changes, at most [`TYPICAL_CHANGES`].
    fn with_room_for(small: bool, changes: usize) -> Self {
        let most = changes.min(MANY);
        Self {
            small,
            places: Vec::with_capacity(most),
            expected: Vec::with_capacity(most),
            states: Vec::with_capacity(most),
            counts: Vec::with_capacity(most),
            fields: Vec::with_capacity(most),
            workflows: HashSet::with_capacity(most),
            ..Self::default()
        }
    }

    /// Number of arguments of its states, strings and operations.
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

    fn add(&mut self, keys: &Keys, place: usize, change: &'a Change) {
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

    /// A call that only adds and removes rows of a set, if `state` has the field `mark`. If `mark`
    /// is empty, `state` must not exist.
    pub(super) fn of_rows(
        state: &str,
        mark: &'a str,
        set: Set,
        add: &'a [Row],
        remove: &'a [Row],
    ) -> Self {
        let mut call = Self {
            expected: vec![mark.as_bytes()],
            states: vec![state.to_owned()],
            marked: !mark.is_empty(),
            places: vec![0],
            ..Self::default()
        };
        let rows = add
            .iter()
            .flat_map(|row| [ScriptArg::Bytes(b"0"), ScriptArg::Bytes(row)]);
        share(&mut call.added[set as usize], 0, rows);
        share(
            &mut call.removed[set as usize],
            0,
            remove.iter().map(|row| ScriptArg::Bytes(row)),
        );
        call.counts.push(0);
        call
    }

    /// A call that runs every command of the script and changes nothing. It uses scratch keys, and
    /// a row that is in none of the sets.
    pub(super) fn probe(scratch: [String; 2]) -> Self {
        let [hash, string] = scratch;
        let mut call = Self {
            expected: vec![b""],
            states: vec![hash.clone()],
            places: vec![0],
            ..Self::default()
        };
        let nothing = || ScriptArg::Bytes(b"");
        call.claims.push(KeyClaim { change: 0, key: 0 });
        call.string(string.clone(), nothing());
        call.own(
            Opcode::PutFields,
            hash.clone(),
            [ScriptArg::Bytes(META), nothing()],
        );
        call.own(Opcode::Remove, hash.clone(), []);
        call.own(Opcode::Remove, string, []);
        call.own(Opcode::RemoveFields, hash.clone(), [ScriptArg::Bytes(META)]);
        // The hash is handled as a staged state that is renamed to itself.
        call.fields.push(ScriptArg::Integer(
            (Set::ALL.len() + 2 + call.others.len()) as u64,
        ));
        call.others.push(hash);
        for set in Set::ALL {
            share(
                &mut call.added[set as usize],
                0,
                [ScriptArg::Bytes(b"XX"), ScriptArg::Integer(0), nothing()],
            );
            share(&mut call.removed[set as usize], 0, [nothing()]);
        }
        call.counts.push(1);
        call
    }

    /// Adds a write that adds nothing to a call that changes states and removes rows but adds none.
    /// Redis checks its memory only at the first write of a script, and the script's test of ZREM
    /// would be that write.
    fn ask_for_room(&mut self) {
        let own = !self.own[0].operations.is_empty() || !self.strings.is_empty();
        let adds = own || self.added.iter().any(|rows| !rows.pieces.is_empty());
        let removes = self.removed.iter().any(|rows| !rows.pieces.is_empty());
        let change = self.counts.iter().position(|&fields| fields > 0);
        if let Some(change) = change.filter(|_| removes && !adds) {
            let nothing = [
                ScriptArg::Bytes(b"XX"),
                ScriptArg::Integer(0),
                ScriptArg::Bytes(b""),
            ];
            share(&mut self.added[Set::Timers as usize], change, nothing);
        }
    }

    /// Adds the long row to the timers, if the call adds timers at all. Returns whether it does.
    pub(super) fn lengthen_timers(&mut self) -> bool {
        let timers = &mut self.added[Set::Timers as usize];
        let Some(&(change, _)) = timers.shares.last() else {
            return false;
        };
        share(
            timers,
            change,
            [ScriptArg::Bytes(b"-1"), ScriptArg::Bytes(LONG_ROW)],
        );
        true
    }

    /// Number of changes of the call.
    pub(super) fn len(&self) -> usize {
        self.states.len()
    }

    /// Lets the call publish `message` on `channel` with `command`.
    pub(super) fn announce(&mut self, command: &'static str, channel: String, message: Vec<u8>) {
        self.announcement = Some(AnnounceCommand {
            command,
            channel,
            bytes: message,
        });
    }

    /// The position of the change that is being added.
    fn current(&self) -> usize {
        self.counts.len()
    }
}

fn share<'a>(rows: &mut Rows<'a>, change: usize, pieces: impl IntoIterator<Item = ScriptArg<'a>>) {
    let before = rows.pieces.len();
    rows.pieces.extend(pieces);
    let count = rows.pieces.len() - before;
    rows.shares.extend((count > 0).then_some((change, count)));
}
