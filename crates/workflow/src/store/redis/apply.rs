//! Changes of one partition as calls of the script `apply.lua`, whose header describes the
//! arguments and answers.

mod answer;
mod arguments;
pub(crate) mod chunked;
mod operations;

use hashbrown::HashSet;

pub(super) use self::answer::{found_empty_partition, was_not_announced};
pub(super) use self::arguments::{ScriptArg, pack};
pub(super) use self::operations::state_fields;

use super::keys::{Keys, META, Set, WorkflowKey};
use crate::codec::{Change, Row, Stamp, Write};
use crate::model::WorkflowId;

/// The script that applies changes.
pub(super) const SCRIPT: &str = include_str!("apply/apply.lua");

/// Arguments and bytes at which a call takes no more changes. Redis runs nothing else during a
/// call, and larger calls cost no less per change.
const MAX_ARGUMENTS: usize = 4_000;
const MAX_CALL_BYTES: usize = 512 << 10;
/// Capacity reserved for a call: more changes than most calls have.
const TYPICAL_CHANGES: usize = 128;

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
struct SharedRows<'a> {
    arguments: Vec<ScriptArg<'a>>,
    /// The changes that take part in the operation, each with its number of arguments.
    shares: Vec<(usize, usize)>,
}

/// One call of the script.
#[derive(Debug, Default)]
pub(crate) struct ScriptCall<'a> {
    /// Whether the states are those of small workflows. All states of a call are of one kind.
    small: bool,
    /// Whether the state must have a field, instead of an expected meta.
    expects_field: bool,
    /// Positions of the changes of this call among all changes.
    positions: Vec<usize>,
    expected: Vec<&'a [u8]>,
    states: Vec<String>,
    /// Number of `fields` of each change.
    counts: Vec<usize>,
    fields: Vec<ScriptArg<'a>>,
    strings: Vec<StringWrite<'a>>,
    /// Keys after those of the states.
    other_keys: Vec<String>,
    claims: Vec<KeyClaim>,
    expected_writes: Vec<ExpectedWrite>,
    /// Operations that add, and operations that remove.
    single_writes: [SingleWrites<'a>; 2],
    /// Rows of each set, in the order of the keys.
    removed: [SharedRows<'a>; Set::ALL.len()],
    added: [SharedRows<'a>; Set::ALL.len()],
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
        for (position, change) in each.filter(|(_, change)| change.small == small) {
            if !calls.last().is_some_and(|call| call.accepts(change)) {
                calls.push(ScriptCall::with_capacity(small, changes.len()));
            }
            let call = calls.last_mut().expect("there is one with room");
            call.add(keys, position, change);
        }
    }
    calls.iter_mut().for_each(ScriptCall::add_memory_check);
    calls
}

/// The idempotency key that a change claims or releases.
fn idempotency_key(change: &Change) -> Option<&str> {
    match &change.write {
        Write::Put(put) => put.creation.as_ref()?.idempotency_key.as_deref(),
        Write::Delete(delete) => delete.idempotency_key.as_deref(),
    }
}

impl<'a> ScriptCall<'a> {
    /// An empty call with capacity for the given changes, at most [`TYPICAL_CHANGES`].
    fn with_capacity(small: bool, changes: usize) -> Self {
        let capacity = changes.min(TYPICAL_CHANGES);
        Self {
            small,
            positions: Vec::with_capacity(capacity),
            expected: Vec::with_capacity(capacity),
            states: Vec::with_capacity(capacity),
            counts: Vec::with_capacity(capacity),
            fields: Vec::with_capacity(capacity),
            workflows: HashSet::with_capacity(capacity),
            ..Self::default()
        }
    }

    /// Number of arguments of its states, strings and operations.
    fn arguments(&self) -> usize {
        let rows = self
            .removed
            .iter()
            .chain(&self.added)
            .map(|rows| rows.arguments.len());
        let single = self
            .single_writes
            .iter()
            .map(|single| single.arguments.len());
        self.fields.len() + self.strings.len() + single.chain(rows).sum::<usize>()
    }

    fn accepts(&self, change: &Change) -> bool {
        self.small == change.small
            && self.arguments() < MAX_ARGUMENTS
            && self.bytes < MAX_CALL_BYTES
            && !self.workflows.contains(&change.workflow)
            && idempotency_key(change).is_none_or(|key| !self.idempotency_keys.contains(key))
    }

    fn add(&mut self, keys: &Keys, position: usize, change: &'a Change) {
        self.positions.push(position);
        let id = &change.workflow;
        self.workflows.insert(*id);
        self.idempotency_keys.extend(idempotency_key(change));
        self.expected
            .push(change.expected.as_deref().unwrap_or_default());
        self.states.push(keys.workflow_key(
            *id,
            if self.small {
                WorkflowKey::Small
            } else {
                WorkflowKey::State
            },
        ));
        let before = self.fields.len();
        match &change.write {
            Write::Put(put) => self.put(keys, id, put),
            Write::Delete(delete) => self.delete(keys, id, delete),
        }
        self.counts.push(self.fields.len() - before);
    }

    /// A call that only adds and removes rows of a set, if `state` has the field `mark`. If `mark`
    /// is empty, `state` must not exist.
    pub(super) fn for_rows(
        state: &str,
        mark: &'a str,
        set: Set,
        add: &'a [Row],
        remove: &'a [Row],
    ) -> Self {
        let mut call = Self {
            expected: vec![mark.as_bytes()],
            states: vec![state.to_owned()],
            expects_field: !mark.is_empty(),
            positions: vec![0],
            ..Self::default()
        };
        let rows = add
            .iter()
            .flat_map(|row| [ScriptArg::Bytes(b"0"), ScriptArg::Bytes(row)]);
        add_shared(&mut call.added[set as usize], 0, rows);
        add_shared(
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
            positions: vec![0],
            ..Self::default()
        };
        let nothing = || ScriptArg::Bytes(b"");
        call.claims.push(KeyClaim { change: 0, key: 0 });
        call.add_string(string.clone(), nothing());
        call.add_single(
            Opcode::PutFields,
            hash.clone(),
            [ScriptArg::Bytes(META), nothing()],
        );
        call.add_single(Opcode::Remove, hash.clone(), []);
        call.add_single(Opcode::Remove, string, []);
        call.add_single(Opcode::RemoveFields, hash.clone(), [ScriptArg::Bytes(META)]);
        // The hash is handled as a staged state that is renamed to itself.
        call.fields.push(ScriptArg::Integer(
            (Set::ALL.len() + 2 + call.other_keys.len()) as u64,
        ));
        call.other_keys.push(hash);
        for set in Set::ALL {
            add_shared(
                &mut call.added[set as usize],
                0,
                [ScriptArg::Bytes(b"XX"), ScriptArg::Integer(0), nothing()],
            );
            add_shared(&mut call.removed[set as usize], 0, [nothing()]);
        }
        call.counts.push(1);
        call
    }

    /// Adds a write that adds nothing to a call that changes states and removes rows but adds none.
    /// Redis checks its memory only at the first write of a script, and the script's test of ZREM
    /// would be that write.
    fn add_memory_check(&mut self) {
        let adds_single = !self.single_writes[0].operations.is_empty() || !self.strings.is_empty();
        let adds = adds_single || self.added.iter().any(|rows| !rows.arguments.is_empty());
        let removes = self.removed.iter().any(|rows| !rows.arguments.is_empty());
        let change = self.counts.iter().position(|&fields| fields > 0);
        if let Some(change) = change.filter(|_| removes && !adds) {
            let nothing = [
                ScriptArg::Bytes(b"XX"),
                ScriptArg::Integer(0),
                ScriptArg::Bytes(b""),
            ];
            add_shared(&mut self.added[Set::Timers as usize], change, nothing);
        }
    }

    /// Adds the long row to the timers, if the call adds timers at all. Returns whether it does.
    pub(super) fn lengthen_timers(&mut self) -> bool {
        let timers = &mut self.added[Set::Timers as usize];
        let Some(&(change, _)) = timers.shares.last() else {
            return false;
        };
        add_shared(
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
    fn current_change(&self) -> usize {
        self.counts.len()
    }
}

fn add_shared<'a>(
    rows: &mut SharedRows<'a>,
    change: usize,
    arguments: impl IntoIterator<Item = ScriptArg<'a>>,
) {
    let before = rows.arguments.len();
    rows.arguments.extend(arguments);
    let count = rows.arguments.len() - before;
    rows.shares.extend((count > 0).then_some((change, count)));
}
