//! Anchors and aliases.

use std::collections::HashMap;

use super::MAX_ALIASED;
use crate::error::Problem;
use crate::node::Node;

/// Bytes of a text for which an alias to it counts as one more node.
const NODE_BYTES: usize = 64;

/// Finished node.
#[derive(Debug)]
pub(super) struct BuiltNode<S> {
    pub(super) node: Node<S>,
    /// Number of nodes that an alias to it stands for: this node and all in it, with aliases
    /// followed.
    pub(super) size: usize,
    /// Number of nested lists and maps; 0 for a scalar.
    pub(super) height: usize,
    pub(super) is_merge_key: bool,
}

impl<S> BuiltNode<S> {
    /// Returns the node as an alias has it. Only the plain word itself is a merge key.
    fn aliased(&self) -> Self {
        Self {
            node: self.node.clone(),
            size: self.size,
            height: self.height,
            is_merge_key: false,
        }
    }
}

/// Returns the number of nodes that an alias to a text counts as.
pub(super) fn scalar_size(text: &str) -> usize {
    1 + text.len() / NODE_BYTES
}

/// Anchors so far.
#[derive(Debug)]
pub(super) struct Anchors<S> {
    /// Nodes by anchor. `None` if the node has not ended.
    named: HashMap<String, Option<BuiltNode<S>>>,
    /// Number of nodes that the aliases so far stand for.
    aliased: usize,
}

impl<S> Default for Anchors<S> {
    fn default() -> Self {
        Self {
            named: HashMap::new(),
            aliased: 0,
        }
    }
}

impl<S> Anchors<S> {
    /// Begins a list or map with this anchor.
    pub(super) fn begin(&mut self, name: &str) {
        self.named.insert(name.to_owned(), None);
    }

    /// Ends a node, which may have this anchor.
    pub(super) fn insert(&mut self, name: Option<String>, built: &BuiltNode<S>) {
        if let Some(name) = name {
            self.named.insert(name, Some(built.aliased()));
        }
    }

    /// Returns the node that an alias stands for.
    pub(super) fn follow(&mut self, name: &str) -> Result<BuiltNode<S>, Problem> {
        let Some(found) = self.named.get(name) else {
            return Err(Problem::UnknownAnchor(name.to_owned()));
        };
        let Some(found) = found else {
            return Err(Problem::AnchorInItself(name.to_owned()));
        };
        self.aliased = self.aliased.saturating_add(found.size);
        if self.aliased > MAX_ALIASED {
            return Err(Problem::TooManyAliased { max: MAX_ALIASED });
        }
        Ok(found.aliased())
    }
}
