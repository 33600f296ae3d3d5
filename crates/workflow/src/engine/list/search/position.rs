//! Positions of a search, and their text.

use std::fmt;
use std::str::FromStr;

use crate::engine::list::query::Cursor;
use crate::model::InvalidId;

/// The end of a page of a search: its positions among the workflows that the index finds and among
/// those that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SearchCursor {
    pub(super) indexed: Position,
    pub(super) scanned: Position,
}

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
        write!(formatter, "{}.{}", self.indexed, self.scanned)
    }
}

impl FromStr for SearchCursor {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        // Without a dot, the second text is empty, which is no position.
        let (indexed, scanned) = text.split_once('.').unwrap_or((text, ""));
        Ok(Self {
            indexed: indexed.parse()?,
            scanned: scanned.parse()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_from_its_text() {
        let id = "01M7Z85C8H08RJZ5Q5JGPKMY04";
        for text in ["start.end", &format!("{id}.{id}"), &format!("end.{id}")] {
            let cursor: SearchCursor = text.parse().unwrap();
            assert_eq!(cursor.to_string(), text);
        }
        for text in ["", id, "start", "start.", "start.end.", "a.b"] {
            assert!(text.parse::<SearchCursor>().is_err(), "{text}");
        }
    }
}
