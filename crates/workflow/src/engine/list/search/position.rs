//! Positions of a search, and their text.

use std::fmt;
use std::str::FromStr;

use super::text::MAX_FOUND_NAMES;
use crate::engine::list::query::Cursor;
use crate::model::InvalidId;

/// The end of a page of a search: its positions among the workflows that the index finds and among
/// those that are read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SearchCursor {
    pub(super) indexed: Position,
    pub(super) scanned: Position,
    /// The names whose workflows the index finds on all pages of this search.
    pub(super) names: Vec<NameHash>,
}

/// A hash of a name, the same at all servers.
pub(super) type NameHash = u32;

/// Characters of the text of a hash.
const HASH_CHARS: usize = 8;

/// A position in a list of workflows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Position {
    #[default]
    Start,
    After(Cursor),
    End,
}

const START: &str = "start";
const END: &str = "end";

impl Position {
    /// The cursor of the list from here on. `None` at the end.
    pub(super) fn cursor(self) -> Option<Option<Cursor>> {
        match self {
            Self::Start => Some(None),
            Self::After(cursor) => Some(Some(cursor)),
            Self::End => None,
        }
    }
}

impl SearchCursor {
    pub(super) fn is_end(&self) -> bool {
        [self.indexed, self.scanned] == [Position::End; 2]
    }
}

impl fmt::Display for Position {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start => formatter.write_str(START),
            Self::After(cursor) => cursor.fmt(formatter),
            Self::End => formatter.write_str(END),
        }
    }
}

impl FromStr for Position {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        Ok(match text {
            START => Self::Start,
            END => Self::End,
            _ => Self::After(text.parse()?),
        })
    }
}

impl fmt::Display for SearchCursor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}.", self.indexed, self.scanned)?;
        self.names
            .iter()
            .try_for_each(|hash| write!(formatter, "{hash:0HASH_CHARS$x}"))
    }
}

impl FromStr for SearchCursor {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        // A text that is not there is empty, which is no position.
        let mut parts = text.splitn(3, '.');
        let mut part = || parts.next().unwrap_or_default();
        Ok(Self {
            indexed: part().parse()?,
            scanned: part().parse()?,
            names: hashes(part())?,
        })
    }
}

fn hashes(text: &str) -> Result<Vec<NameHash>, InvalidId> {
    let invalid = || InvalidId {
        text: text.chars().take(40).collect(),
    };
    let texts = text.as_bytes().chunks(HASH_CHARS);
    if texts.len() > MAX_FOUND_NAMES {
        return Err(invalid());
    }
    let hash = |bytes: &[u8]| {
        let is_hash = bytes.len() == HASH_CHARS && bytes.iter().all(u8::is_ascii_hexdigit);
        let text = std::str::from_utf8(bytes).ok().filter(|_| is_hash)?;
        NameHash::from_str_radix(text, 16).ok()
    };
    texts.map(|bytes| hash(bytes).ok_or_else(invalid)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_from_its_text() {
        let id = "01M7Z85C8H08RJZ5Q5JGPKMY04";
        for text in [
            "start.end.",
            &format!("{id}.{id}.0000000fffffffff"),
            &format!("end.{id}.01234567"),
        ] {
            let cursor: SearchCursor = text.parse().unwrap();
            assert_eq!(cursor.to_string(), text);
        }
        let many = format!("end.end.{}", "0".repeat(HASH_CHARS * (MAX_FOUND_NAMES + 1)));
        let wrong = ["end.end.0", "end.end.+1234567", "end.end.0123456é", &many];
        for text in ["", id, "start", "start.", "a.b."].into_iter().chain(wrong) {
            assert!(text.parse::<SearchCursor>().is_err(), "{text}");
        }
    }
}
