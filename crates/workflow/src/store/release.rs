//! What a server tells the others when a place is free for which one of them waits. As an announcement it may get lost.

use super::change_notice::ServerId;

/// The first byte. Earlier versions know nothing that begins with it.
const VERSION: u8 = 2;

/// A place in a set is free.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Release {
    pub(crate) by: ServerId,
    /// The name of the set.
    pub(crate) set: String,
}

impl Release {
    pub(crate) fn write(by: ServerId, set: &str) -> Vec<u8> {
        [&[VERSION][..], &by.0.to_be_bytes(), set.as_bytes()].concat()
    }

    /// Reads a message. None: it is another one.
    pub(crate) fn read(message: &[u8]) -> Option<Self> {
        let (&VERSION, rest) = message.split_first()? else {
            return None;
        };
        let (by, set) = rest.split_first_chunk()?;
        let set = std::str::from_utf8(set).ok()?.to_owned();
        Some(Self {
            by: ServerId(u64::from_be_bytes(*by)),
            set,
        })
    }
}
