//! Selects the commands of a batch that are sent again.

use std::ops::Range;

use smallvec::SmallVec;

use super::{Batch, Command, Placement, Repeat, Unit};
use crate::outcome::Outcome;

/// State of a slot at the node that gets its commands. A node that imports a slot runs commands
/// only after ASKING.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SlotState {
    Importing,
    Owned,
}

impl Batch {
    /// Returns the commands of a unit that must be sent again, given the outcomes of the whole
    /// batch: indices in order.
    ///
    /// A command that did not run, for a temporary reason, is sent again. Repeatable commands at
    /// the end of the unit are sent again from the first one that may not have run: a counter must
    /// not stay without its expiry because the connection broke between the two. Repeatable
    /// commands after another command that is sent again follow it, and commands of
    /// [`crate::UnitBuilder::confirmed_by`] only then. A command that may have run and is not
    /// repeatable never runs twice.
    pub(crate) fn unfinished(&self, unit: u32, outcomes: &[Outcome]) -> SmallVec<[usize; 2]> {
        let commands = self.commands_of(unit..unit + 1);
        if self.units[unit as usize].transaction {
            return self.unfinished_transaction(commands, outcomes);
        }
        let tail = self.tail_of(commands.clone());
        let begun = commands
            .clone()
            .any(|command| outcomes[command].may_have_run());
        let is_sent_again = |&command: &usize| {
            let outcome = &outcomes[command];
            self.commands[command].repeat != Repeat::Behind
                && (outcome.may_be_sent_again()
                    || (command >= tail && outcome.may_be_repeated(begun)))
        };
        let Some(first) = commands.clone().find(is_sent_again) else {
            return SmallVec::new();
        };
        (first..commands.end)
            .filter(|command| {
                is_sent_again(command) || self.commands[*command].repeat != Repeat::Never
            })
            .collect()
    }

    /// A transaction is sent again as a whole, and only if it did not run.
    fn unfinished_transaction(
        &self,
        commands: Range<usize>,
        outcomes: &[Outcome],
    ) -> SmallVec<[usize; 2]> {
        let exec = commands.end - 1;
        let harmless = self.tail_of(commands.clone()) == commands.start;
        let is_sent_again = |command: usize| {
            outcomes[command].may_be_sent_again()
                || (harmless && outcomes[command].may_be_repeated(false))
        };
        if !outcomes[exec].ran() && commands.clone().any(is_sent_again) {
            commands.collect()
        } else {
            SmallVec::new()
        }
    }

    /// Returns the commands of `units` that must be sent although their caller has left, given
    /// their outcomes. `None` if there are none. These are the repeatable commands at the end of a
    /// unit, from the first one without an answer, if a command before them may have run.
    ///
    /// Other unfinished commands are not sent, because no caller waits for their replies.
    pub(crate) fn left_behind(
        &self,
        units: impl Iterator<Item = u32>,
        mut outcomes: &[Outcome],
    ) -> Option<Self> {
        if outcomes.iter().all(Outcome::ran) {
            return None;
        }
        let mut left = Self::new();
        for unit in units {
            let commands = self.commands_of(unit..unit + 1);
            let own = outcomes.split_off(..commands.len())?;
            let tail = self.tail_of(commands.clone());
            let (before, behind) = own.split_at(tail - commands.start);
            let first = behind.iter().position(|outcome| !outcome.is_answered());
            if let Some(first) = first.filter(|_| before.iter().any(Outcome::may_have_run)) {
                left.append(
                    self,
                    unit,
                    &(tail + first..commands.end).collect::<Vec<_>>(),
                    SlotState::Owned,
                );
            }
        }
        (!left.is_empty()).then_some(left)
    }

    /// Appends a whole unit of `other`.
    pub(crate) fn append_unit(&mut self, other: &Self, unit: u32) {
        let commands: Vec<usize> = other.commands_of(unit..unit + 1).collect();
        self.append(other, unit, &commands, SlotState::Owned);
    }

    /// Appends all units of `other`.
    pub(crate) fn append_all(&mut self, other: &Self) {
        (0..other.units.len() as u32).for_each(|unit| self.append_unit(other, unit));
    }

    /// Returns the index of the first repeatable command in the run that ends a unit.
    fn tail_of(&self, mut commands: Range<usize>) -> usize {
        let start = commands.start;
        commands
            .rfind(|&command| self.commands[command].repeat != Repeat::Anytime)
            .map_or(start, |last| last + 1)
    }

    /// Returns whether a command of a unit ran.
    pub(crate) fn has_begun(&self, unit: u32, outcomes: &[Outcome]) -> bool {
        outcomes[self.commands_of(unit..unit + 1)]
            .iter()
            .any(Outcome::ran)
    }

    /// Returns whether a command of a unit may have run that is not among those to send again.
    pub(crate) fn may_have_begun(&self, unit: u32, again: &[usize], outcomes: &[Outcome]) -> bool {
        self.commands_of(unit..unit + 1)
            .any(|command| !again.contains(&command) && outcomes[command].may_have_run())
    }

    /// Appends commands of `from` as one unit. ASKING precedes each command if the target node
    /// imports the slot.
    ///
    /// Returns the new index of each command of `from`.
    pub(crate) fn append(
        &mut self,
        from: &Self,
        unit: u32,
        commands: &[usize],
        slot_state: SlotState,
    ) -> Vec<usize> {
        let transaction = from.units[unit as usize].transaction;
        let mut positions = Vec::with_capacity(commands.len());
        for (position, &command) in commands.iter().enumerate() {
            // The server forgets ASKING after one command, but remembers it for a whole
            // transaction.
            if slot_state == SlotState::Importing && (position == 0 || !transaction) {
                self.push(b"*1\r\n$6\r\nASKING\r\n", Repeat::Anytime);
            }
            positions.push(self.commands.len());
            self.push(
                &from.encoded[from.bytes_of(command..command + 1)],
                from.commands[command].repeat,
            );
        }
        let placement = from
            .slot_of(unit)
            .map_or(Placement::Anywhere, Placement::Slot);
        self.units.push(Unit {
            commands_end: self.commands.len() as u32,
            placement,
            transaction,
        });
        positions
    }

    fn push(&mut self, encoded: &[u8], repeat: Repeat) {
        self.encoded.extend_from_slice(encoded);
        self.commands.push(Command {
            end: self.encoded.len() as u32,
            repeat,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Arg;
    use crate::outcome::{NotSent, Rejected, Rejection, Unknown};
    use crate::wire::{Reply, ServerError, Slot};

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
        Outcome::Rejected(Rejected {
            kind: Rejection::TryAgain,
            message: "TRYAGAIN".into(),
        })
    }

    fn unknown() -> Outcome {
        Outcome::Unknown(Unknown::DeadlineExceeded { node: "n".into() })
    }

    fn lost() -> Outcome {
        Outcome::Unknown(Unknown::ConnectionLost {
            node: "n".into(),
            reason: "reset".into(),
        })
    }

    fn failed() -> Outcome {
        Outcome::ServerError(ServerError {
            message: "WRONGTYPE".into(),
        })
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
        check(&batch, &[rejected(), unknown()], &[1, 2]);
        check(&batch, &[rejected(), failed()], &[1, 2]);
        check(&batch, &[failed(), failed()], &[]);
    }

    #[test]
    fn an_expiry_that_may_be_missing_goes_again_by_itself() {
        let batch = counter();
        check(&batch, &[ran(), lost()], &[2]);
        check(&batch, &[lost(), lost()], &[2]);
        check(&batch, &[rejected(), lost()], &[1, 2]);
        check(&batch, &[unknown(), unknown()], &[]);
        let overloaded = || Outcome::NotSent(NotSent::Overloaded { node: "n".into() });
        check(&batch, &[ran(), overloaded()], &[2]);
        check(&batch, &[lost(), overloaded()], &[2]);
        check(&batch, &[overloaded(), overloaded()], &[]);
        // An increment in between must not run before the write that it follows is repeated.
        let mut batch = Batch::new();
        batch.unit().command("PING", &[]);
        let key = Arg::Key(b"k");
        batch
            .unit()
            .repeatable("SET", &[key])
            .command("INCR", &[key])
            .repeatable("EXPIRE", &[key]);
        check(&batch, &[lost(), lost(), lost()], &[3]);
        check(&batch, &[ran(), rejected(), ran()], &[2, 3]);
    }

    #[test]
    fn an_expiry_is_sent_although_its_caller_has_left() {
        let batch = counter();
        let check = |unit: &[Outcome], left: Option<&str>| {
            let outcomes: Vec<Outcome> = [ran()].into_iter().chain(unit.iter().cloned()).collect();
            let found = batch.left_behind(0..2, &outcomes);
            let found = found.map(|left| (left.len(), String::from_utf8(left.encoded).unwrap()));
            assert_eq!(found, left.map(|text| (1, text.to_owned())), "{unit:?}");
        };
        let expiry = Some("*3\r\n$6\r\nEXPIRE\r\n$1\r\nk\r\n$2\r\n60\r\n");
        check(&[ran(), ran()], None);
        check(&[ran(), lost()], expiry);
        check(&[lost(), lost()], expiry);
        check(&[ran(), rejected()], expiry);
        check(&[rejected(), rejected()], None);
        check(&[failed(), lost()], None);
        check(&[ran(), failed()], None);
    }

    #[test]
    fn a_harmless_unit_goes_again_whatever_became_of_it() {
        let mut batch = Batch::new();
        batch.unit().command("PING", &[]);
        batch
            .unit()
            .repeatable("GET", &[Arg::Key(b"k")])
            .repeatable("TTL", &[Arg::Key(b"k")]);
        check(&batch, &[lost(), lost()], &[1, 2]);
        check(&batch, &[ran(), lost()], &[2]);
        check(&batch, &[unknown(), unknown()], &[]);
    }

    /// By itself, on a connection that wrote nothing, it is answered at once.
    #[test]
    fn what_confirms_goes_again_only_behind_what_it_confirms() {
        let mut batch = Batch::new();
        batch.unit().command("PING", &[]);
        let key = Arg::Key(b"k");
        let wait = [Arg::Integer(1), Arg::Integer(100)];
        batch
            .unit()
            .command("INCR", &[key])
            .command("INCR", &[key])
            .confirmed_by("WAIT", &wait);
        check(&batch, &[ran(), ran(), ran()], &[]);
        check(&batch, &[ran(), ran(), rejected()], &[]);
        check(&batch, &[ran(), ran(), lost()], &[]);
        check(&batch, &[lost(), lost(), lost()], &[]);
        check(&batch, &[ran(), rejected(), ran()], &[2, 3]);
        check(&batch, &[rejected(), rejected(), ran()], &[1, 2, 3]);
    }

    #[test]
    fn a_transaction_goes_again_as_a_whole() {
        let mut batch = Batch::new();
        batch.unit().command("PING", &[]);
        batch
            .unit()
            .command("MULTI", &[])
            .command("INCRBY", &[Arg::Key(b"k"), Arg::Integer(1)])
            .command("EXEC", &[]);
        let aborted = Outcome::ServerError(ServerError {
            message: "EXECABORT Transaction discarded".into(),
        });
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
        assert_eq!(
            again.append(&batch, 1, &[1, 2], SlotState::Importing),
            [1, 3]
        );
        assert_eq!(
            again.append(&batch, 2, &[3, 4], SlotState::Importing),
            [5, 6]
        );
        assert_eq!(again.append(&batch, 1, &[2], SlotState::Owned), [7]);
        let names = String::from_utf8(again.encoded.clone()).unwrap();
        let names: Vec<&str> = names
            .split("\r\n")
            .filter(|part| part.len() > 3 && part.is_ascii())
            .collect();
        let names: Vec<&str> = names
            .into_iter()
            .filter(|name| name.chars().all(|c| c.is_ascii_uppercase()))
            .collect();
        assert_eq!(
            names,
            [
                "ASKING", "INCRBY", "ASKING", "EXPIRE", "ASKING", "MULTI", "EXEC", "EXPIRE"
            ]
        );
        assert_eq!(
            again
                .units
                .iter()
                .map(|unit| unit.commands_end)
                .collect::<Vec<_>>(),
            [4, 7, 8]
        );
        assert_eq!(
            (0..3).map(|unit| again.slot_of(unit)).collect::<Vec<_>>(),
            [Some(Slot::for_key(b"k")), None, Some(Slot::for_key(b"k"))]
        );
    }
}
