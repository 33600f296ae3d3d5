//! The message that a permit of a limit was released, for servers that wait for one. It may get
//! lost.

use super::ServerId;

/// The first byte. Earlier versions ignore a message that begins with it.
const VERSION: u8 = 2;

/// A permit of a limit was released.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Release {
    pub(crate) by: ServerId,
    /// The name of the limit.
    pub(crate) limit: String,
}

impl Release {
    pub(crate) fn write(by: ServerId, limit: &str) -> Vec<u8> {
        [&[VERSION][..], &by.0.to_be_bytes(), limit.as_bytes()].concat()
    }

    /// Reads a message. `None` if it is of another kind.
    pub(crate) fn read(message: &[u8]) -> Option<Self> {
        let (&VERSION, rest) = message.split_first()? else {
            return None;
        };
        let (by, limit) = rest.split_first_chunk()?;
        let limit = std::str::from_utf8(limit).ok()?.to_owned();
        Some(Self {
            by: ServerId(u64::from_be_bytes(*by)),
            limit,
        })
    }
}
