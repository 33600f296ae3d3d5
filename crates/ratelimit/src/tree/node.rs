//! One configured descriptor.

use std::sync::Arc;

use super::{Level, Limit};

/// A configured descriptor, with those below it.
#[derive(Debug, Default)]
pub struct Node {
    /// `key`, or `key_value`.
    pub(crate) composite: Arc<str>,
    /// Where the key ends in it.
    pub(crate) key_length: usize,
    /// The line of its file, from 1; 0 when it has none.
    pub line: u32,
    /// Its limit, if it has one.
    pub limit: Option<Limit>,
    /// The descriptors below it.
    pub below: Level,
    /// Put the request's value into the stats key.
    pub value_to_metric: bool,
    /// All values that match the pattern share one counter.
    pub share_threshold: bool,
}

impl Node {
    /// The key.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.composite[..self.key_length]
    }

    /// The value, in which a `*` stands for any text; empty when the descriptor has none and stands for every value.
    #[must_use]
    pub fn value(&self) -> &str {
        self.composite[self.key_length..]
            .strip_prefix('_')
            .unwrap_or_default()
    }
}
