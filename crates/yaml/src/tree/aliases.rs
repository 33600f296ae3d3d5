//! Anchors, and what their aliases stand for.

use std::collections::HashMap;

use super::MAX_ALIASED;
use crate::error::Problem;
use crate::node::Node;

/// An alias to a text counts as one more node for each of these bytes.
const NODE_BYTES: usize = 64;

/// A finished node.
#[derive(Debug)]
pub(super) struct Built<S> {
    pub(super) node: Node<S>,
    /// The number of nodes for which an alias to it stands: this one and all in it, with aliases followed.
    pub(super) size: usize,
    /// The number of lists and maps inside each other; 0 for a scalar.
    pub(super) height: usize,
    pub(super) is_merge_key: bool,
}

/// What an alias to a text counts as.
pub(super) fn scalar_size(text: &str) -> usize {
    1 + text.len() / NODE_BYTES
}

/// The anchors so far.
#[derive(Debug)]
pub(super) struct Anchors<S> {
    /// `None` while the node has not ended.
    named: HashMap<String, Option<Built<S>>>,
    /// The number of nodes for which the aliases so far stand.
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
    /// A list or map with this anchor begins.
    pub(super) fn begin(&mut self, name: &str) {
        self.named.insert(name.to_owned(), None);
    }

    pub(super) fn insert(&mut self, name: String, built: &Built<S>) {
        let Built {
            node, size, height, ..
        } = built;
        let built = Built {
            node: node.clone(),
            size: *size,
            height: *height,
            is_merge_key: false,
        };
        self.named.insert(name, Some(built));
    }

    /// What an alias stands for.
    pub(super) fn follow(&mut self, name: &str) -> Result<Built<S>, Problem> {
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
        Ok(Built {
            node: found.node.clone(),
            size: found.size,
            height: found.height,
            is_merge_key: false,
        })
    }
}
