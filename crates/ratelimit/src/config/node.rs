//! A YAML document as a tree of nodes. Each node knows its position in the file.

use std::fmt;
use std::rc::Rc;

use super::scalar::Scalar;

/// A position in a file. Lines and columns count from 1; a column is one character.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Position {
    pub(super) line: u32,
    pub(super) column: u32,
}

/// A value and the position of its start.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) at: Position,
    pub(super) content: Content,
}

#[derive(Debug)]
pub(super) enum Content {
    Scalar(Scalar),
    List(Vec<Rc<Node>>),
    /// Pairs in the order of the file, with merge keys already followed. The same key may occur more than once.
    Map(Vec<Pair>),
}

/// A key of a map and its value.
#[derive(Debug, Clone)]
pub(super) struct Pair {
    /// The position of the key.
    pub(super) at: Position,
    pub(super) key: Scalar,
    pub(super) value: Rc<Node>,
}

impl fmt::Display for Node {
    /// Writes the value as Go prints it, because the reference's messages contain it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.content {
            Content::Scalar(scalar) => write!(f, "{scalar}"),
            Content::List(items) => {
                f.write_str("[")?;
                for (index, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", if index == 0 { "" } else { " " })?;
                }
                f.write_str("]")
            }
            Content::Map(pairs) => {
                f.write_str("map[")?;
                for (index, pair) in pairs.iter().enumerate() {
                    write!(f, "{}{}:{}", if index == 0 { "" } else { " " }, pair.key, pair.value)?;
                }
                f.write_str("]")
            }
        }
    }
}
