//! Adds commands to a unit of a batch.

use super::{Batch, Command, Placement, Repeat, Unit};
use crate::outcome::NotSent;
use crate::wire::{Slot, push_array, push_bulk};

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

/// Adds commands to one unit of a batch.
#[derive(Debug)]
pub struct UnitBuilder<'a> {
    batch: &'a mut Batch,
    unit: Unit,
    /// Index of the unit's first command.
    first: u32,
}

/// Returns whether a command is refused: it would change the connection for other callers, delay
/// their replies, or have more or fewer replies than one.
fn is_refused(name: &str, args: &[Arg<'_>]) -> bool {
    if name.bytes().any(|byte| byte.is_ascii_lowercase()) {
        return is_refused(&name.to_ascii_uppercase(), args);
    }
    if name == "CLIENT" {
        return matches!(args, [Arg::Bytes(what), ..] if what.eq_ignore_ascii_case(b"REPLY"));
    }
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
            | "PSYNC"
            | "PUNSUBSCRIBE"
            | "QUIT"
            | "RESET"
            | "SELECT"
            | "SSUBSCRIBE"
            | "SUBSCRIBE"
            | "SUNSUBSCRIBE"
            | "SYNC"
            | "UNSUBSCRIBE"
            | "WAIT"
            | "WAITAOF"
            | "WATCH"
    )
}

/// Estimates the encoded length of a command in bytes, from below.
fn encoded_length(name: &str, args: &[Arg<'_>]) -> usize {
    /// Bytes around an argument whose length has two digits.
    const FRAME: usize = "$10\r\n\r\n".len();
    let length = |arg: &Arg<'_>| match arg {
        Arg::Key(bytes) | Arg::Bytes(bytes) => FRAME + bytes.len(),
        Arg::Integer(_) => 2 * FRAME,
    };
    2 * FRAME + name.len() + args.iter().map(length).sum::<usize>()
}

impl Batch {
    /// Starts a unit. A unit without commands is dropped.
    pub fn unit(&mut self) -> UnitBuilder<'_> {
        let first = self.commands.len() as u32;
        let unit = Unit {
            commands_end: first,
            placement: Placement::Anywhere,
            transaction: false,
        };
        UnitBuilder {
            batch: self,
            unit,
            first,
        }
    }

    /// Encodes a key of `unit`. The first one decides which node runs the unit.
    fn push_key(&mut self, unit: &mut Unit, key: &[u8]) {
        let start = push_bulk(&mut self.encoded, key);
        match unit.placement {
            Placement::Key(start, end) => {
                let first = &self.encoded[start as usize..end as usize];
                if !Slot::share_slot(first, key) {
                    self.refused = Some(NotSent::CrossSlot);
                }
            }
            _ => unit.placement = Placement::Key(start as u32, (start + key.len()) as u32),
        }
    }
}

impl UnitBuilder<'_> {
    /// Appends a command: its name, then its arguments.
    ///
    /// Commands that block or change the connection (SUBSCRIBE, BLPOP, SELECT, WATCH, ..), and keys
    /// in different slots, make the whole batch fail with [`NotSent::Refused`] or
    /// [`NotSent::CrossSlot`] when it is sent.
    pub fn command(mut self, name: &'static str, args: &[Arg<'_>]) -> Self {
        self.encode(name, args, Repeat::Never);
        self
    }

    /// Appends a command that may run twice without harm.
    ///
    /// The command is sent again if a command before it in the unit is sent again: EXPIRE after
    /// INCRBY, for example. At the end of a unit it is also sent again alone if it is unknown
    /// whether it ran. After a command that may have run and is not repeatable, it is sent for up
    /// to 30 s even if the caller has left.
    pub fn repeatable(mut self, name: &'static str, args: &[Arg<'_>]) -> Self {
        self.encode(name, args, Repeat::Anytime);
        self
    }

    /// Appends WAIT or WAITAOF, which answers when replicas or disks have what the unit wrote.
    ///
    /// The command is sent again only after a command of the unit that is sent again: alone, on
    /// another connection, it would answer at once. It delays all later commands on its connection.
    /// Send such units through a separate client with [`Config::in_flight_commands`](crate::Config)
    /// at 1.
    pub fn confirmed_by(mut self, name: &'static str, args: &[Arg<'_>]) -> Self {
        self.encode(name, args, Repeat::Behind);
        self
    }

    fn encode(&mut self, name: &'static str, args: &[Arg<'_>], repeat: Repeat) {
        let Self { batch, unit, first } = self;
        let confirms = repeat == Repeat::Behind && matches!(name, "WAIT" | "WAITAOF");
        if !confirms && is_refused(name, args) {
            batch.refused = Some(NotSent::Refused { command: name });
        }
        batch.encoded.reserve(encoded_length(name, args));
        push_array(&mut batch.encoded, args.len() + 1);
        push_bulk(&mut batch.encoded, name.as_bytes());
        for arg in args {
            match *arg {
                Arg::Key(key) => batch.push_key(unit, key),
                Arg::Bytes(bytes) => {
                    push_bulk(&mut batch.encoded, bytes);
                }
                Arg::Integer(value) => {
                    push_bulk(
                        &mut batch.encoded,
                        itoa::Buffer::new().format(value).as_bytes(),
                    );
                }
            }
        }
        batch.commands.push(Command {
            end: batch.encoded.len() as u32,
            repeat,
        });
        let is_first = unit.commands_end == *first;
        unit.transaction |= is_first && name == "MULTI";
        unit.commands_end += 1;
        // A unit without a command would be a group whose replies never end, so the unit is added
        // with its first command.
        match batch.units.last_mut() {
            Some(last) if !is_first => *last = *unit,
            _ => batch.units.push(*unit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_encoded_as_redis_expects() {
        let mut batch = Batch::new();
        batch
            .unit()
            .command("INCRBY", &[Arg::Key(b"k"), Arg::Integer(-12)])
            .command("GET", &[Arg::Key(b"")]);
        assert_eq!(
            String::from_utf8(batch.encoded.clone()).unwrap(),
            "*3\r\n$6\r\nINCRBY\r\n$1\r\nk\r\n$3\r\n-12\r\n*2\r\n$3\r\nGET\r\n$0\r\n\r\n"
        );
        assert_eq!(batch.len(), 2);
        assert_eq!(batch.units.len(), 1);
    }

    #[test]
    fn commands_without_exactly_one_reply_are_refused() {
        let check = |name: &'static str, args: &[Arg<'_>], refused: bool| {
            let mut batch = Batch::new();
            batch.unit().command(name, args);
            assert_eq!(
                batch.refused,
                refused.then_some(NotSent::Refused { command: name }),
                "{name}"
            );
        };
        for name in [
            "SUBSCRIBE",
            "subscribe",
            "SUNSUBSCRIBE",
            "PUNSUBSCRIBE",
            "Monitor",
            "SYNC",
            "PSYNC",
        ] {
            check(name, &[], true);
        }
        check("CLIENT", &[Arg::Bytes(b"reply"), Arg::Bytes(b"OFF")], true);
        check("client", &[Arg::Bytes(b"REPLY"), Arg::Bytes(b"SKIP")], true);
        check(
            "CLIENT",
            &[Arg::Bytes(b"TRACKING"), Arg::Bytes(b"ON")],
            false,
        );
        check("get", &[Arg::Key(b"reply")], false);
        check("WAIT", &[Arg::Integer(1), Arg::Integer(0)], true);
        let mut batch = Batch::new();
        batch
            .unit()
            .command("SET", &[Arg::Key(b"k")])
            .confirmed_by("WAIT", &[Arg::Integer(1), Arg::Integer(9)]);
        assert_eq!(batch.refused, None);
        batch.unit().confirmed_by("BLPOP", &[]);
        assert_eq!(batch.refused, Some(NotSent::Refused { command: "BLPOP" }));
    }

    #[test]
    fn keys_of_a_unit_must_share_a_slot() {
        let check = |keys: [&str; 2], expected: Option<NotSent>| {
            let mut batch = Batch::new();
            batch.unit().command(
                "MGET",
                &[Arg::Key(keys[0].as_bytes()), Arg::Key(keys[1].as_bytes())],
            );
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
        batch.unit();
        assert_eq!(
            batch
                .units
                .iter()
                .map(|unit| unit.commands_end)
                .collect::<Vec<_>>(),
            [1, 2]
        );
    }
}
