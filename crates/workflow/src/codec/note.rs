//! What workers say of the jobs they are at, as it is stored: how far they are, and lines for people.

use serde::{Deserialize, Serialize};

use super::record::{append, unreadable};
use crate::store::error::StoreError;
use crate::time::Timestamp;

/// How far an attempt was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// The attempt, from 1.
    pub attempt: u16,
    /// When its worker said so.
    pub at: Timestamp,
    /// 0 to 100.
    pub percent: u8,
    /// A word for people.
    pub text: String,
}

/// A line of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// The attempt that it is of, from 1.
    pub attempt: u16,
    /// When it arrived.
    pub at: Timestamp,
    /// What the worker wrote. It may have any characters.
    pub text: String,
}

/// What a piece of a log consists of. One follows the other, so a piece grows at its end.
#[derive(Debug, Serialize, Deserialize)]
enum Entry {
    /// Lines that came together.
    Lines {
        attempt: u16,
        at: Timestamp,
        texts: Vec<String>,
    },
}

/// Lines that came together, for the end of a piece of a log.
pub(crate) fn entry(attempt: u16, at: Timestamp, texts: Vec<String>) -> Vec<u8> {
    append(Vec::new(), &Entry::Lines { attempt, at, texts })
}

/// The lines of a piece of a log, in their order.
pub(crate) fn lines(
    mut piece: &[u8],
    what: impl Fn() -> String,
) -> Result<Vec<LogLine>, StoreError> {
    let mut lines = Vec::new();
    while !piece.is_empty() {
        let (Entry::Lines { attempt, at, texts }, rest) =
            postcard::take_from_bytes(piece).map_err(|error| unreadable(error, &what))?;
        lines.extend(texts.into_iter().map(|text| LogLine { attempt, at, text }));
        piece = rest;
    }
    Ok(lines)
}
