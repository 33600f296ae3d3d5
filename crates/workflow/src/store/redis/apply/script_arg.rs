//! Arguments of scripts.

use tidegate_pipeline::Arg;

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
