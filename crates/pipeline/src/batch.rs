//! A caller's ordered commands, encoded once, as they are added.

use std::ops::Range;

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
/// Commands of one unit run on one connection without another caller's commands between them; nothing is promised about
/// the order in which two units of one batch run.
#[derive(Debug, Default, Clone)]
pub struct Batch {
    pub(crate) encoded: Vec<u8>,
    /// Where each command ends in `encoded`.
    pub(crate) command_ends: Vec<u32>,
    pub(crate) units: Vec<Unit>,
    /// A command that must not run on a shared connection, if one was added.
    pub(crate) refused: Option<&'static str>,
}

/// Commands that run together, on the node that owns their key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unit {
    /// Index after the unit's last command.
    pub(crate) commands_end: u32,
    /// Where the unit's first key is in `encoded`; none for a command any node can run.
    pub(crate) key: Option<(u32, u32)>,
}

/// Adds commands to one unit of a batch.
#[derive(Debug)]
pub struct UnitBuilder<'a> {
    batch: &'a mut Batch,
}

/// Commands that would change the meaning of a shared connection, or hold it up for everybody.
const REFUSED: [&str; 19] = [
    "AUTH",
    "BLMOVE",
    "BLMPOP",
    "BLPOP",
    "BRPOP",
    "BRPOPLPUSH",
    "BZMPOP",
    "BZPOPMAX",
    "BZPOPMIN",
    "HELLO",
    "MONITOR",
    "PSUBSCRIBE",
    "QUIT",
    "RESET",
    "SELECT",
    "SSUBSCRIBE",
    "SUBSCRIBE",
    "UNSUBSCRIBE",
    "WATCH",
];

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
            command_ends: Vec::with_capacity(commands),
            units: Vec::with_capacity(commands),
            refused: None,
        }
    }

    /// Starts a unit. A unit without commands is dropped.
    pub fn unit(&mut self) -> UnitBuilder<'_> {
        let commands_end = self.command_ends.len() as u32;
        // A unit left empty is overwritten rather than kept: units and outcomes must stay in step.
        let previous = self.units.len().checked_sub(2).map_or(0, |at| self.units[at].commands_end);
        match self.units.last_mut() {
            Some(last) if last.commands_end == previous => *last = Unit { commands_end, key: None },
            _ => self.units.push(Unit { commands_end, key: None }),
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

    /// The encoded bytes of a run of commands.
    pub(crate) fn bytes_of(&self, commands: Range<usize>) -> Range<usize> {
        let before = |command: usize| match command.checked_sub(1) {
            Some(previous) => self.command_ends[previous] as usize,
            None => 0,
        };
        before(commands.start)..before(commands.end)
    }

    /// The units whose commands satisfy `wanted`.
    pub(crate) fn units_where(&self, wanted: impl Fn(Range<usize>) -> bool) -> Vec<u32> {
        (0..self.units.len() as u32).filter(|&unit| wanted(self.commands_of(unit..unit + 1))).collect()
    }

    /// A batch of some of this one's units, for sending those again.
    pub(crate) fn subset(&self, units: &[u32]) -> Self {
        let mut subset = Self::new();
        for &unit in units {
            let commands = self.commands_of(unit..unit + 1);
            let bytes = self.bytes_of(commands.clone());
            let shift = |at: u32| at - bytes.start as u32 + subset.encoded.len() as u32;
            let key = self.units[unit as usize].key.map(|(start, end)| (shift(start), shift(end)));
            subset.command_ends.extend(self.command_ends[commands].iter().map(|&end| shift(end)));
            subset.units.push(Unit { commands_end: subset.command_ends.len() as u32, key });
            subset.encoded.extend_from_slice(&self.encoded[bytes]);
        }
        subset
    }

    /// The number of commands.
    #[must_use]
    pub fn len(&self) -> usize {
        self.command_ends.len()
    }

    /// Whether there is no command.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.command_ends.is_empty()
    }
}

impl UnitBuilder<'_> {
    /// Appends a command: its name, then its arguments.
    ///
    /// Commands that block or change the connection (SUBSCRIBE, BLPOP, SELECT, MULTI's WATCH, ..) make the whole batch
    /// fail with [`crate::NotSent::Refused`] when it is sent.
    pub fn command(self, name: &'static str, args: &[Arg<'_>]) -> Self {
        if REFUSED.binary_search(&name).is_ok() {
            self.batch.refused = Some(name);
        }
        let out = &mut self.batch.encoded;
        push_header(out, b'*', args.len() + 1);
        push_bulk(out, name.as_bytes());
        let mut key = None;
        for arg in args {
            match *arg {
                Arg::Key(bytes) => {
                    let start = push_bulk(out, bytes);
                    key = key.or(Some((start as u32, (start + bytes.len()) as u32)));
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
        self.batch.command_ends.push(end);
        let unit = self.batch.units.last_mut().expect("a builder exists only after its unit was pushed");
        unit.commands_end += 1;
        unit.key = unit.key.or(key);
        self
    }
}

fn push_header(out: &mut Vec<u8>, tag: u8, count: usize) {
    out.push(tag);
    out.extend_from_slice(itoa::Buffer::new().format(count).as_bytes());
    out.extend_from_slice(b"\r\n");
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

    #[test]
    fn commands_are_encoded_as_redis_expects() {
        let mut batch = Batch::new();
        batch.unit().command("INCRBY", &[Arg::Key(b"k"), Arg::Integer(-12)]).command("GET", &[Arg::Key(b"")]);
        assert_eq!(
            String::from_utf8(batch.encoded).unwrap(),
            "*3\r\n$6\r\nINCRBY\r\n$1\r\nk\r\n$3\r\n-12\r\n*2\r\n$3\r\nGET\r\n$0\r\n\r\n"
        );
        assert_eq!(batch.command_ends.len(), 2);
        assert_eq!(batch.units.len(), 1);
    }

    #[test]
    fn a_subset_holds_whole_units() {
        let mut batch = Batch::new();
        for key in [b"a", b"b", b"c"] {
            batch.unit().command("GET", &[Arg::Key(key)]).command("TTL", &[Arg::Key(key)]);
        }
        let subset = batch.subset(&[0, 2]);
        let mut expected = Batch::new();
        for key in [b"a", b"c"] {
            expected.unit().command("GET", &[Arg::Key(key)]).command("TTL", &[Arg::Key(key)]);
        }
        assert_eq!(subset.encoded, expected.encoded);
        assert_eq!(subset.command_ends, expected.command_ends);
        let (start, end) = subset.units[1].key.unwrap();
        assert_eq!(&subset.encoded[start as usize..end as usize], b"c");
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

    #[test]
    fn refused_names_are_sorted_for_the_search() {
        assert!(REFUSED.is_sorted());
    }
}
