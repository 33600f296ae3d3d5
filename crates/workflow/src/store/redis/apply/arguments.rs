//! The arguments of a call: two packed plans of the script's operations, and the values.

use tidegate_pipeline::{Arg, UnitBuilder};

use super::{AnnounceCommand, Opcode, ScriptCall, SharedRows};
use crate::codec::Stamp;
use crate::store::redis::key_arg;
use crate::store::redis::keys::Set;

impl<'a> ScriptCall<'a> {
    /// The operations on rows that changes share, in the order of their arguments: position of the
    /// set, and rows.
    fn shared_rows(&self, command: Opcode) -> impl Iterator<Item = (usize, &SharedRows<'a>)> {
        let sets = if command.removes() {
            &self.removed
        } else {
            &self.added
        };
        sets.iter()
            .enumerate()
            .filter(|(_, rows)| !rows.arguments.is_empty())
    }

    /// The two packed arguments: the plan if no change is refused, and the plan with the operations
    /// of each change.
    fn plans(&self) -> [Vec<u8>; 2] {
        let mut combined = Vec::with_capacity(32);
        let mut separate = Vec::with_capacity(32);
        let mut adds = [0; 2];
        let [adding, removing] = &self.single_writes;
        for (single, command) in [(adding, Opcode::AddRows), (removing, Opcode::RemoveRows)] {
            for operation in &single.operations {
                let header = [
                    operation.command as usize,
                    self.other_key(operation.key),
                    operation.arguments,
                ];
                combined.extend(header);
                separate.extend(header.into_iter().chain([operation.change + 1]));
            }
            for (set, rows) in self.shared_rows(command) {
                combined.extend([command as usize, set + 1, rows.arguments.len()]);
                let shares = rows.shares.iter();
                separate.extend(
                    shares.flat_map(|&(change, count)| {
                        [command as usize, set + 1, count, change + 1]
                    }),
                );
            }
            if command == Opcode::AddRows {
                adds = [combined.len() / 3, separate.len() / 4];
            }
        }
        let sizes = [adds[0], combined.len() / 3];
        let mut refused = vec![adds[1], separate.len() / 4, self.expected_writes.len()];
        refused.append(&mut separate);
        for expected in &self.expected_writes {
            let Stamp { version, writer } = expected.stamp;
            refused.extend([expected.change + 1, version as usize, writer as usize]);
            refused.push(expected.trail_length as usize);
        }
        [pack(&self.head(sizes, combined)), pack(&refused)]
    }

    /// The plan if no change is refused. `sizes` are the numbers of operations that add, and of all
    /// operations.
    fn head(&self, sizes: [usize; 2], mut operations: Vec<usize>) -> Vec<usize> {
        let kind = if self.expects_field {
            2
        } else {
            usize::from(self.small)
        };
        let pairs = self.claims.len() + self.strings.len();
        let mut head = Vec::with_capacity(6 + 2 * pairs + self.counts.len() + operations.len());
        head.extend([self.states.len(), kind]);
        head.extend([self.claims.len(), self.strings.len()]);
        head.extend(sizes);
        for claim in &self.claims {
            head.extend([claim.change + 1, self.other_key(claim.key)]);
        }
        for string in &self.strings {
            head.extend([string.change + 1, self.other_key(string.key)]);
        }
        head.extend(&self.counts);
        head.append(&mut operations);
        head
    }

    /// The number in the script of a key after those of the states.
    fn other_key(&self, key: usize) -> usize {
        Set::ALL.len() + self.states.len() + key + 1
    }

    /// Appends the call to a unit. `script` is the digest or text for `command`; `sets` are the
    /// keys of the partition's sets.
    pub(in crate::store::redis) fn append<'u>(
        &self,
        unit: UnitBuilder<'u>,
        command: &'static str,
        script: &[u8],
        sets: &[String; Set::ALL.len()],
    ) -> UnitBuilder<'u> {
        let plans = self.plans();
        let number = sets.len() + self.states.len() + self.other_keys.len();
        let mut args = Vec::with_capacity(7 + number + self.expected.len() + self.arguments());
        args.extend([Arg::Bytes(script), Arg::Integer(number as i64)]);
        for keys in [sets, &self.states[..], &self.other_keys] {
            args.extend(keys.iter().map(|key| key_arg(key)));
        }
        args.extend(plans.iter().map(|plan| Arg::Bytes(plan)));
        args.extend(self.expected.iter().map(|meta| Arg::Bytes(meta)));
        args.extend(self.fields.iter().map(ScriptArg::arg));
        args.extend(self.strings.iter().map(|string| string.value.arg()));
        for (single, command) in self
            .single_writes
            .iter()
            .zip([Opcode::AddRows, Opcode::RemoveRows])
        {
            args.extend(single.arguments.iter().map(ScriptArg::arg));
            self.shared_rows(command)
                .for_each(|(_, rows)| args.extend(rows.arguments.iter().map(ScriptArg::arg)));
        }
        if let Some(AnnounceCommand {
            command,
            channel,
            bytes,
        }) = &self.announcement
        {
            args.extend([command.as_bytes(), channel.as_bytes(), bytes].map(Arg::Bytes));
        }
        unit.command(command, &args)
    }
}

/// An argument of a script.
#[derive(Debug)]
pub(crate) enum ScriptArg<'a> {
    Bytes(&'a [u8]),
    Text(String),
    Packed(Vec<u8>),
    Integer(u64),
}

impl ScriptArg<'_> {
    pub(crate) fn arg(&self) -> Arg<'_> {
        match self {
            Self::Bytes(bytes) => Arg::Bytes(bytes),
            Self::Text(text) => Arg::Bytes(text.as_bytes()),
            Self::Packed(packed) => Arg::Bytes(packed),
            // A later time means the same: never.
            Self::Integer(value) => Arg::Integer(i64::try_from(*value).unwrap_or(i64::MAX)),
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Text(text) => text.len(),
            Self::Packed(packed) => packed.len(),
            Self::Integer(_) => size_of::<u64>(),
        }
    }
}

/// Packs integers as a MessagePack array: a small one takes one byte, and Redis unpacks the array
/// in one call.
pub(crate) fn pack(integers: &[usize]) -> Vec<u8> {
    let mut packed = Vec::with_capacity(5 + integers.len());
    packed.push(0xdd);
    packed.extend_from_slice(&(integers.len() as u32).to_be_bytes());
    for &integer in integers {
        match (u8::try_from(integer), u16::try_from(integer)) {
            (Ok(small @ ..0x80), _) => packed.push(small),
            (_, Ok(medium)) => {
                packed.push(0xcd);
                packed.extend_from_slice(&medium.to_be_bytes());
            }
            _ => {
                packed.push(0xce);
                packed.extend_from_slice(&(integer as u32).to_be_bytes());
            }
        }
    }
    packed
}
