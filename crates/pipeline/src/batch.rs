//! A caller's ordered commands, encoded once, as they are added.

use std::ops::Range;

use smallvec::SmallVec;

use crate::call::Load;
use crate::outcome::{NotSent, Outcome, Unknown};
use crate::wire::slot::Slot;

/// One argument of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arg<'a> {
    /// A key. The keys of a unit decide which node runs it; they must all be in one slot.
    Key(&'a [u8]),
    /// Any other bytes, sent as they are.
    Bytes(&'a [u8]),
    /// An integer, sent in decimal.
    Integer(i64),
}

/// A caller's ordered commands.
///
/// Commands are encoded as they are added, on the caller's task. The order of the units is the order of the outcomes.
/// Commands of one unit run on one connection without another caller's commands between them. Units of one key run in their
/// order in a batch of up to 512 commands; nothing else is promised about the order in which units run.
#[derive(Debug, Default, Clone)]
pub struct Batch {
    pub(crate) encoded: Vec<u8>,
    /// Most batches are a counter or two, and each allocation shows in what a call costs.
    commands: SmallVec<[Command; 4]>,
    pub(crate) units: SmallVec<[Unit; 2]>,
    /// Why the batch cannot be sent, if it cannot.
    pub(crate) refused: Option<NotSent>,
}

#[derive(Debug, Clone, Copy)]
struct Command {
    /// Where it ends in `encoded`.
    end: u32,
    /// Running it twice is as good as once.
    repeatable: bool,
}

/// Commands that run together, on the node that owns their key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unit {
    /// Index after the unit's last command.
    pub(crate) commands_end: u32,
    owner: Owner,
    /// The unit starts with MULTI: it runs as a whole or not at all.
    transaction: bool,
}

/// What decides which node runs a unit.
#[derive(Debug, Clone, Copy)]
enum Owner {
    /// Any node will do.
    Anyone,
    /// The owner of the key that is here in `encoded`. Its slot is worked out only when there are several nodes.
    OfKey(u32, u32),
    /// The owner of a slot.
    OfSlot(Slot),
}

/// Whether commands go to a node that their slot is still moving to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asking {
    Yes,
    No,
}

/// Adds commands to one unit of a batch.
#[derive(Debug)]
pub struct UnitBuilder<'a> {
    batch: &'a mut Batch,
}

/// Whether a command would change the meaning of a shared connection, or hold it up for everybody.
fn is_refused(name: &str) -> bool {
    matches!(
        name,
        "AUTH"
            | "BLMOVE"
            | "BLMPOP"
            | "BLPOP"
            | "BRPOP"
            | "BRPOPLPUSH"
            | "BZMPOP"
            | "BZPOPMAX"
            | "BZPOPMIN"
            | "HELLO"
            | "MONITOR"
            | "PSUBSCRIBE"
            | "QUIT"
            | "RESET"
            | "SELECT"
            | "SSUBSCRIBE"
            | "SUBSCRIBE"
            | "UNSUBSCRIBE"
            | "WAIT"
            | "WAITAOF"
            | "WATCH"
    )
}

impl Batch {
    /// An empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty batch with room for `commands` commands of `bytes` encoded bytes in all.
    #[must_use]
    pub fn with_capacity(commands: usize, bytes: usize) -> Self {
        Self {
            encoded: Vec::with_capacity(bytes),
            commands: SmallVec::with_capacity(commands),
            units: SmallVec::with_capacity(commands),
            refused: None,
        }
    }

    /// Starts a unit. A unit without commands is dropped.
    pub fn unit(&mut self) -> UnitBuilder<'_> {
        let empty = Unit { commands_end: self.commands.len() as u32, owner: Owner::Anyone, transaction: false };
        // A unit left empty is overwritten rather than kept: units and outcomes must stay in step.
        let previous = self.units.len().checked_sub(2).map_or(0, |at| self.units[at].commands_end);
        match self.units.last_mut() {
            Some(last) if last.commands_end == previous => *last = empty,
            _ => self.units.push(empty),
        }
        UnitBuilder { batch: self }
    }

    /// The commands of a run of units, as indices.
    pub(crate) fn commands_of(&self, units: Range<u32>) -> Range<usize> {
        let before = |unit: u32| match unit.checked_sub(1) {
            Some(previous) => self.units[previous as usize].commands_end as usize,
            None => 0,
        };
        before(units.start)..before(units.end)
    }

    /// What a unit weighs.
    pub(crate) fn load_of(&self, unit: u32) -> Load {
        let commands = self.commands_of(unit..unit + 1);
        Load { commands: commands.len(), bytes: self.bytes_of(commands).len() }
    }

    /// The encoded bytes of a run of commands.
    pub(crate) fn bytes_of(&self, commands: Range<usize>) -> Range<usize> {
        let before = |command: usize| match command.checked_sub(1) {
            Some(previous) => self.commands[previous].end as usize,
            None => 0,
        };
        before(commands.start)..before(commands.end)
    }

    /// The slot that decides which node runs a unit; none when any can.
    pub(crate) fn slot_of(&self, unit: u32) -> Option<Slot> {
        match self.units[unit as usize].owner {
            Owner::OfSlot(slot) => Some(slot),
            _ => self.key_of(unit).map(Slot::of),
        }
    }

    /// The key of a unit; none when it has none, or only its slot is known.
    pub(crate) fn key_of(&self, unit: u32) -> Option<&[u8]> {
        match self.units[unit as usize].owner {
            Owner::OfKey(start, end) => Some(&self.encoded[start as usize..end as usize]),
            Owner::Anyone | Owner::OfSlot(_) => None,
        }
    }

    /// What of a unit must be sent again, given the outcomes of the whole batch: indices of commands, in order.
    ///
    /// Commands that did not run, for a reason that may pass, go again. So does a command after one of those that ran
    /// already, when it may run twice: the expiry of a counter belongs behind its increment. A unit in which every command
    /// may run twice goes again also when its fate is unknown. Nothing else ever does.
    pub(crate) fn unfinished(&self, unit: u32, outcomes: &[Outcome]) -> SmallVec<[usize; 2]> {
        let commands = self.commands_of(unit..unit + 1);
        let harmless = commands.clone().all(|command| self.commands[command].repeatable);
        let again = |command: &usize| {
            let lost = matches!(outcomes[*command], Outcome::Unknown(Unknown::ConnectionLost { .. }));
            outcomes[*command].may_be_sent_again() || (harmless && lost)
        };
        if self.units[unit as usize].transaction {
            let ran = commands.clone().last().is_some_and(|exec| outcomes[exec].ran());
            return match !ran && commands.clone().any(|command| again(&command)) {
                true => commands.collect(),
                false => SmallVec::new(),
            };
        }
        let Some(first) = commands.clone().find(again) else { return SmallVec::new() };
        (first..commands.end)
            .filter(|command| again(command) || (outcomes[*command].ran() && self.commands[*command].repeatable))
            .collect()
    }

    /// Appends commands of `from` as one unit. With `asking`, each is told to run at a node its slot is moving to.
    ///
    /// Returns where each command of `from` is now.
    pub(crate) fn append(&mut self, from: &Self, unit: u32, commands: &[usize], asking: Asking) -> Vec<usize> {
        let transaction = from.units[unit as usize].transaction;
        let mut places = Vec::with_capacity(commands.len());
        self.unit();
        for (position, &command) in commands.iter().enumerate() {
            // The server forgets ASKING after one command, but remembers it for a whole transaction.
            if asking == Asking::Yes && (position == 0 || !transaction) {
                self.push(b"*1\r\n$6\r\nASKING\r\n", true);
            }
            places.push(self.commands.len());
            self.push(&from.encoded[from.bytes_of(command..command + 1)], from.commands[command].repeatable);
        }
        let last = self.units.last_mut().expect("the unit was just started");
        last.transaction = transaction;
        last.owner = from.slot_of(unit).map_or(Owner::Anyone, Owner::OfSlot);
        places
    }

    fn push(&mut self, encoded: &[u8], repeatable: bool) {
        self.encoded.extend_from_slice(encoded);
        self.commands.push(Command { end: self.encoded.len() as u32, repeatable });
        let unit = self.units.last_mut().expect("commands are pushed into a unit");
        unit.commands_end += 1;
    }

    /// The number of commands.
    #[must_use]
    pub fn len(&self) -> usize {
        self.commands.len()
    }

    /// Whether there is no command.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }
}

impl UnitBuilder<'_> {
    /// Appends a command: its name, then its arguments.
    ///
    /// Commands that block or change the connection (SUBSCRIBE, BLPOP, SELECT, WATCH, ..), and keys in different slots,
    /// make the whole batch fail with [`NotSent::Refused`] or [`NotSent::CrossSlot`] when it is sent.
    pub fn command(self, name: &'static str, args: &[Arg<'_>]) -> Self {
        self.encode(name, args, false)
    }

    /// As [`UnitBuilder::command`], for a command that may run twice without harm.
    ///
    /// It is then sent again when a command before it in the unit has to be: EXPIRE behind INCRBY, say.
    pub fn repeatable(self, name: &'static str, args: &[Arg<'_>]) -> Self {
        self.encode(name, args, true)
    }

    fn encode(self, name: &'static str, args: &[Arg<'_>], repeatable: bool) -> Self {
        let batch = &mut *self.batch;
        if is_refused(name) {
            batch.refused = Some(NotSent::Refused { command: name });
        }
        let mut unit = *batch.units.last().expect("a builder exists only after its unit was pushed");
        let out = &mut batch.encoded;
        push_header(out, b'*', args.len() + 1);
        push_bulk(out, name.as_bytes());
        for arg in args {
            match *arg {
                Arg::Key(bytes) => {
                    let start = push_bulk(out, bytes);
                    match unit.owner {
                        Owner::OfKey(start, end) => {
                            let first = &out[start as usize..end as usize];
                            if first != bytes && Slot::of(first) != Slot::of(bytes) {
                                batch.refused = Some(NotSent::CrossSlot);
                            }
                        }
                        _ => unit.owner = Owner::OfKey(start as u32, (start + bytes.len()) as u32),
                    }
                }
                Arg::Bytes(bytes) => {
                    push_bulk(out, bytes);
                }
                Arg::Integer(value) => {
                    push_bulk(out, itoa::Buffer::new().format(value).as_bytes());
                }
            }
        }
        let end = out.len() as u32;
        let before = batch.units.len().checked_sub(2).map_or(0, |at| batch.units[at].commands_end);
        unit.transaction |= unit.commands_end == before && name == "MULTI";
        unit.commands_end += 1;
        batch.commands.push(Command { end, repeatable });
        *batch.units.last_mut().expect("it was there above") = unit;
        self
    }
}

fn push_header(out: &mut Vec<u8>, tag: u8, count: usize) {
    // Nearly all arguments are this short, and a fixed length is copied without a call.
    match count as u8 {
        _ if count > 99 => {
            out.push(tag);
            out.extend_from_slice(itoa::Buffer::new().format(count).as_bytes());
            out.extend_from_slice(b"\r\n");
        }
        digit @ 0..=9 => out.extend_from_slice(&[tag, b'0' + digit, b'\r', b'\n']),
        two => out.extend_from_slice(&[tag, b'0' + two / 10, b'0' + two % 10, b'\r', b'\n']),
    }
}

/// Appends a bulk string and returns where its bytes start.
fn push_bulk(out: &mut Vec<u8>, bytes: &[u8]) -> usize {
    push_header(out, b'$', bytes.len());
    let start = out.len();
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
    start
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{Rejected, Rejection, ServerError};
    use crate::wire::resp::Reply;

    #[test]
    fn commands_are_encoded_as_redis_expects() {
        let mut batch = Batch::new();
        batch.unit().command("INCRBY", &[Arg::Key(b"k"), Arg::Integer(-12)]).command("GET", &[Arg::Key(b"")]);
        assert_eq!(
            String::from_utf8(batch.encoded.clone()).unwrap(),
            "*3\r\n$6\r\nINCRBY\r\n$1\r\nk\r\n$3\r\n-12\r\n*2\r\n$3\r\nGET\r\n$0\r\n\r\n"
        );
        assert_eq!(batch.len(), 2);
        assert_eq!(batch.units.len(), 1);
    }

    fn counter() -> Batch {
        let mut batch = Batch::new();
        batch.unit().command("PING", &[]);
        batch
            .unit()
            .command("INCRBY", &[Arg::Key(b"k"), Arg::Integer(1)])
            .repeatable("EXPIRE", &[Arg::Key(b"k"), Arg::Integer(60)]);
        batch
    }

    fn ran() -> Outcome {
        Outcome::Reply(Reply::Integer(1))
    }

    fn rejected() -> Outcome {
        Outcome::Rejected(Rejected { kind: Rejection::TryAgain, message: "TRYAGAIN".into() })
    }

    fn unknown() -> Outcome {
        Outcome::Unknown(Unknown::DeadlineExceeded { node: "n".into() })
    }

    fn check(batch: &Batch, unit: &[Outcome], expected: &[usize]) {
        let outcomes: Vec<Outcome> = [ran()].into_iter().chain(unit.iter().cloned()).collect();
        assert_eq!(&batch.unfinished(1, &outcomes)[..], expected, "{unit:?}");
    }

    #[test]
    fn only_what_did_not_run_goes_again() {
        let batch = counter();
        check(&batch, &[ran(), ran()], &[]);
        check(&batch, &[rejected(), rejected()], &[1, 2]);
        check(&batch, &[ran(), rejected()], &[2]);
        check(&batch, &[rejected(), ran()], &[1, 2]);
        check(&batch, &[unknown(), rejected()], &[2]);
        check(&batch, &[unknown(), unknown()], &[]);
        check(&batch, &[rejected(), unknown()], &[1]);
    }

    #[test]
    fn a_harmless_unit_goes_again_whatever_became_of_it() {
        let mut batch = Batch::new();
        batch.unit().command("PING", &[]);
        batch.unit().repeatable("GET", &[Arg::Key(b"k")]).repeatable("TTL", &[Arg::Key(b"k")]);
        let lost = || Outcome::Unknown(Unknown::ConnectionLost { node: "n".into(), reason: "reset".into() });
        check(&batch, &[lost(), lost()], &[1, 2]);
        check(&batch, &[ran(), lost()], &[2]);
        check(&batch, &[unknown(), unknown()], &[]);
        check(&counter(), &[lost(), lost()], &[]);
    }

    #[test]
    fn a_transaction_goes_again_as_a_whole() {
        let mut batch = Batch::new();
        batch.unit().command("PING", &[]);
        batch.unit().command("MULTI", &[]).command("INCRBY", &[Arg::Key(b"k"), Arg::Integer(1)]).command("EXEC", &[]);
        let aborted = Outcome::ServerError(ServerError { message: "EXECABORT Transaction discarded".into() });
        check(&batch, &[ran(), rejected(), aborted], &[1, 2, 3]);
        check(&batch, &[ran(), ran(), rejected()], &[1, 2, 3]);
        check(&batch, &[ran(), ran(), ran()], &[]);
        check(&batch, &[ran(), ran(), unknown()], &[]);
    }

    #[test]
    fn asking_stands_before_each_command_but_once_before_a_transaction() {
        let mut batch = counter();
        batch.unit().command("MULTI", &[]).command("EXEC", &[]);
        let mut again = Batch::new();
        assert_eq!(again.append(&batch, 1, &[1, 2], Asking::Yes), [1, 3]);
        assert_eq!(again.append(&batch, 2, &[3, 4], Asking::Yes), [5, 6]);
        assert_eq!(again.append(&batch, 1, &[2], Asking::No), [7]);
        let names = String::from_utf8(again.encoded.clone()).unwrap();
        let names: Vec<&str> = names.split("\r\n").filter(|part| part.len() > 3 && part.is_ascii()).collect();
        let names: Vec<&str> = names.into_iter().filter(|name| name.chars().all(|c| c.is_ascii_uppercase())).collect();
        assert_eq!(names, ["ASKING", "INCRBY", "ASKING", "EXPIRE", "ASKING", "MULTI", "EXEC", "EXPIRE"]);
        assert_eq!(again.units.iter().map(|unit| unit.commands_end).collect::<Vec<_>>(), [4, 7, 8]);
        assert_eq!(
            (0..3).map(|unit| again.slot_of(unit)).collect::<Vec<_>>(),
            [Some(Slot::of(b"k")), None, Some(Slot::of(b"k"))]
        );
    }

    #[test]
    fn keys_of_a_unit_must_share_a_slot() {
        let check = |keys: [&str; 2], expected: Option<NotSent>| {
            let mut batch = Batch::new();
            batch.unit().command("MGET", &[Arg::Key(keys[0].as_bytes()), Arg::Key(keys[1].as_bytes())]);
            assert_eq!(batch.refused, expected);
        };
        check(["a", "a"], None);
        check(["{a}1", "{a}2"], None);
        check(["a", "b"], Some(NotSent::CrossSlot));
    }

    #[test]
    fn an_empty_unit_leaves_no_trace() {
        let mut batch = Batch::new();
        batch.unit();
        batch.unit().command("PING", &[]);
        batch.unit();
        batch.unit().command("PING", &[]);
        assert_eq!(batch.units.iter().map(|unit| unit.commands_end).collect::<Vec<_>>(), [1, 2]);
    }
}
