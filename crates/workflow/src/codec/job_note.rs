//! The stored form of notes that workers send about their jobs: progress and log lines.

use serde::{Deserialize, Serialize};

use super::{StoreError, append, unreadable};
use crate::model::Timestamp;

/// The progress of an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// The attempt, from 1.
    pub attempt: u16,
    /// The time at which its worker reported it.
    pub at: Timestamp,
    /// Percentage from 0 to 100.
    pub percent: u8,
    /// A short text for people.
    pub text: String,
}

/// A line of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// The attempt that logged the line, from 1.
    pub attempt: u16,
    /// The time at which the line arrived.
    pub at: Timestamp,
    /// The text of the worker. It may contain any character.
    pub text: String,
}

/// An item of a log piece. Items are appended, so a piece grows at its end.
#[derive(Debug, Serialize, Deserialize)]
enum LogItem {
    /// Lines that arrived in one report.
    Lines {
        attempt: u16,
        at: Timestamp,
        texts: Vec<String>,
    },
}

/// Encodes lines of one report as bytes to append to a log piece.
pub(crate) fn encode_log_item(attempt: u16, at: Timestamp, texts: Vec<String>) -> Vec<u8> {
    append(Vec::new(), &LogItem::Lines { attempt, at, texts })
}

/// The lines of a log piece in order.
pub(crate) fn decode_log_lines(
    mut piece: &[u8],
    what: impl Fn() -> String,
) -> Result<Vec<LogLine>, StoreError> {
    let mut lines = Vec::new();
    while !piece.is_empty() {
        let (LogItem::Lines { attempt, at, texts }, rest) =
            postcard::take_from_bytes(piece).map_err(|error| unreadable(error, &what))?;
        lines.extend(texts.into_iter().map(|text| LogLine { attempt, at, text }));
        piece = rest;
    }
    Ok(lines)
}
