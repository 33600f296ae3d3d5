//! A batch that is split by nodes and put together again keeps every command, whoever owns its keys.
//!
//! A fuzz target includes this file.

use tidegate_pipeline::test_util::fuzzing::{SplitGroup, Splitter};
use tidegate_pipeline::{Arg, Batch, NotSent, Outcome, Reply};

/// Enough for several groups at each node.
const MOST_UNITS: usize = 40;

pub(crate) const NODES: u16 = 4;

/// A group takes no more than this, unless it is one unit.
const LARGEST_COMMANDS: usize = 512;
const LARGEST_BYTES: usize = 256 * 1024;

/// A unit as three bytes say it.
struct Unit {
    key: Option<u8>,
    commands: usize,
    value: usize,
}

impl Unit {
    fn read(bytes: &[u8]) -> Self {
        let key = (bytes[0] < 0xf0).then_some(bytes[0] % 16);
        // Few are large: one of these fills a group.
        let commands = if bytes[1] > 0xf8 {
            300
        } else {
            usize::from(bytes[1] % 4) + 1
        };
        let value = if bytes[2] > 0xf8 {
            100_000
        } else {
            usize::from(bytes[2])
        };
        Self {
            key,
            commands,
            value,
        }
    }

    /// Keys with the same number in braces are in the same slot.
    fn key(&self) -> Option<String> {
        self.key.map(|key| format!("{{{}}}{key}", key % 8))
    }

    /// Depends on the slot. Some slots have no owner.
    fn owner(&self, shift: u8) -> Option<usize> {
        let node = usize::from(self.key.map_or(0, |key| (key % 8).wrapping_add(shift) % 5));
        (node < usize::from(NODES)).then_some(node)
    }
}

/// The first byte chooses the owners; each three of the rest are a unit.
pub(crate) fn check_splitter(splitter: &Splitter, data: &[u8]) {
    let Some((&shift, units)) = data.split_first() else {
        return;
    };
    let units: Vec<Unit> = units
        .chunks_exact(3)
        .take(MOST_UNITS)
        .map(Unit::read)
        .collect();
    let owner = |unit: u32| units[unit as usize].owner(shift);
    let (groups, outcomes) = splitter.split(batch(&units), owner);
    check_units(&units, &groups, owner);
    check_sizes(&units, &groups);
    check_outcomes(&units, &outcomes, owner);
}

fn batch(units: &[Unit]) -> Batch {
    let mut batch = Batch::new();
    for unit in units {
        let (key, value) = (unit.key(), vec![b'v'; unit.value]);
        let mut builder = batch.unit();
        for _ in 0..unit.commands {
            builder = match &key {
                Some(key) => {
                    builder.command("SET", &[Arg::Key(key.as_bytes()), Arg::Bytes(&value)])
                }
                None => builder.command("ECHO", &[Arg::Bytes(&value)]),
            };
        }
    }
    batch
}

/// Each unit with an owner is in one group of that node, and the units of a key stay in their order.
fn check_units(units: &[Unit], groups: &[SplitGroup], owner: impl Fn(u32) -> Option<usize>) {
    let mut found: Vec<u32> = groups
        .iter()
        .flat_map(|group| group.units.iter().copied())
        .collect();
    found.sort_unstable();
    let owned: Vec<u32> = (0..units.len() as u32)
        .filter(|&unit| owner(unit).is_some())
        .collect();
    assert_eq!(found, owned);
    let mut last_of_key = std::collections::HashMap::new();
    for group in groups {
        assert!(
            group
                .units
                .iter()
                .all(|&unit| owner(unit) == Some(group.node)),
            "{group:?}"
        );
        assert!(group.units.is_sorted(), "{group:?}");
        for &unit in &group.units {
            let key = units[unit as usize].key();
            let earlier = last_of_key.insert((group.node, key), unit);
            assert!(
                earlier.is_none_or(|earlier| earlier < unit),
                "unit {unit} overtakes {earlier:?}"
            );
        }
    }
}

/// A group counts what is in it, and is within its bounds.
fn check_sizes(units: &[Unit], groups: &[SplitGroup]) {
    for group in groups {
        let commands: usize = group
            .units
            .iter()
            .map(|&unit| units[unit as usize].commands)
            .sum();
        assert_eq!(group.commands, commands, "{group:?}");
        let fits = group.commands <= LARGEST_COMMANDS && group.bytes <= LARGEST_BYTES;
        assert!(
            fits || group.units.len() == 1,
            "{} commands, {} bytes",
            group.commands,
            group.bytes
        );
    }
}

/// The caller gets the outcome of each command at its place.
fn check_outcomes(units: &[Unit], outcomes: &[Outcome], owner: impl Fn(u32) -> Option<usize>) {
    let mut command = 0;
    for (at, unit) in units.iter().enumerate() {
        for _ in 0..unit.commands {
            match (&outcomes[command], owner(at as u32)) {
                (Outcome::Reply(Reply::Integer(answered)), Some(_)) => {
                    assert_eq!(*answered, command as i64)
                }
                (Outcome::NotSent(NotSent::NoOwner { .. }), None) => {}
                (outcome, owner) => panic!("command {command} of {owner:?}: {outcome:?}"),
            }
            command += 1;
        }
    }
    assert_eq!(outcomes.len(), command);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generated::mutation::fuzz;

    /// One node, several nodes, units without keys, large units, and slots without an owner.
    const CORPUS: &[&[u8]] = &[
        b"",
        b"\x00",
        b"\x00\x00\x00\x05",
        b"\x01\x00\x00\x05\x08\x01\x05\x00\x02\x05",
        b"\x00\x00\x00\x01\x01\x01\x02\x02\x02\x03\x03\x03\x04\x04\x00\x05\x05\x01\x06",
        b"\x02\x00\x00\x01\x08\x01\x02\x01\x02\x03\x09\x03\x04\x00\x00\x05\x08\x01\x06",
        b"\x03\x00\x00\x01\x08\x01\x02\x00\x02\x03\x08\x03\x04\x00\x00\x05\x08\x01\x06",
        b"\x00\xff\x00\x01\xf1\x01\x02\x00\x02\x03\xff\x03\x04",
        b"\x00\x00\xff\x01\x00\xff\x01\x00\x00\x01\x01\xff\x01\x00\x00\x01",
        b"\x00\x00\x03\xff\x01\x00\x00\x00\x00\x01\x00\x01\xff\x00\x02\xff",
        b"\x04\x00\x00\x01\x01\x00\x01\x02\x00\x01\x03\x00\x01\x04\x00\x01\x05\x00\x01\x06\x00\x01\x07\x00\x01",
    ];

    #[test]
    fn mutated_batches_are_split_and_put_together_again() {
        let splitter = Splitter::new(NODES);
        fuzz(CORPUS, 3_000, |data| check_splitter(&splitter, data));
    }
}
