//! Nodes of a document.

use std::rc::Rc;

/// Position in a text. Lines and columns count from 1, and a column is one character. The default
/// is no position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Position {
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
}

/// Value with its position. If an alias names the value, it is the position of the alias. A clone
/// shares the content.
#[derive(Debug)]
pub struct Node<S> {
    /// Position of the start.
    pub at: Position,
    /// The value, which clones share.
    pub content: Rc<Content<S>>,
}

/// Content of a node. `S` is a scalar of the schema.
#[derive(Debug)]
pub enum Content<S> {
    /// Text, number, or another scalar.
    Scalar(S),
    /// Items in their order.
    List(Vec<Node<S>>),
    /// Pairs in their order, with merge keys applied. If a key occurs more than once, the last pair
    /// counts.
    Map(Vec<Pair<S>>),
}

/// Key of a map and its value.
#[derive(Debug)]
pub struct Pair<S> {
    /// The position of the key.
    pub at: Position,
    /// Key, which shares its content with its anchor.
    pub key: Rc<Content<S>>,
    /// The value.
    pub value: Node<S>,
    /// Whether a merge key added the pair.
    pub merged: bool,
}

// A derived Clone would require scalars to be Clone.
impl<S> Clone for Node<S> {
    fn clone(&self) -> Self {
        Self {
            at: self.at,
            content: Rc::clone(&self.content),
        }
    }
}

impl<S> Pair<S> {
    /// Returns the key. Keys are scalars, because the reader refuses others.
    #[must_use]
    pub fn key(&self) -> &S {
        match &*self.key {
            Content::Scalar(scalar) => scalar,
            _ => unreachable!("the reader refuses keys that are no scalars"),
        }
    }
}
