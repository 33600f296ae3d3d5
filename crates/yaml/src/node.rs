//! A document as a tree.

use std::rc::Rc;

/// A place in a text. Lines and columns count from 1, and a column is one character. The default is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Position {
    /// The line.
    pub line: u32,
    /// The column.
    pub column: u32,
}

/// A value and the position of its start, which is that of the alias where it is named by one. A clone shares the content.
#[derive(Debug)]
pub struct Node<S> {
    /// Where it stands.
    pub at: Position,
    /// The value, which clones share.
    pub content: Rc<Content<S>>,
}

/// The value of a node. `S` is a scalar as the schema has it.
#[derive(Debug)]
pub enum Content<S> {
    /// A text, a number and so on.
    Scalar(S),
    /// The items in their order.
    List(Vec<Node<S>>),
    /// The pairs in their order, with merge keys followed. The same key may occur more than once: then the last one holds.
    Map(Vec<Pair<S>>),
}

/// A key of a map and its value.
#[derive(Debug)]
pub struct Pair<S> {
    /// The position of the key.
    pub at: Position,
    /// The key, which shares its content with an anchor.
    pub key: Rc<Content<S>>,
    /// The value.
    pub value: Node<S>,
    /// Whether a merge key brought it here.
    pub merged: bool,
}

// A derived Clone would ask for scalars that can be cloned.
impl<S> Clone for Node<S> {
    fn clone(&self) -> Self {
        Self {
            at: self.at,
            content: Rc::clone(&self.content),
        }
    }
}

impl<S> Pair<S> {
    /// The key. Keys are scalars: the reader refuses others.
    #[must_use]
    pub fn key(&self) -> &S {
        match &*self.key {
            Content::Scalar(scalar) => scalar,
            _ => unreachable!("the reader refuses keys that are no scalars"),
        }
    }
}
