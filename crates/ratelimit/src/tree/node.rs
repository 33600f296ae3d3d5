//! One configured descriptor.

use std::sync::Arc;

use super::{Level, Limit};

/// A configured descriptor, with those below it.
#[derive(Debug, Default)]
pub struct Node {
    /// `key`, or `key_value`.
    pub(crate) composite: Arc<str>,
    /// Length of the key in `composite`.
    pub(crate) key_length: usize,
    /// The line in its file, from 1. 0 if it has none.
    pub line: u32,
    /// Its limit, if it has one.
    pub limit: Option<Limit>,
    /// The descriptors below it.
    pub below: Level,
    /// Whether the stats key has the request's value.
    pub value_to_metric: bool,
    /// Whether all values that match the pattern share one counter.
    pub share_threshold: bool,
}

impl Node {
    /// Returns the key.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.composite[..self.key_length]
    }

    /// Returns the value, in which a `*` matches any text. Empty if the descriptor has none and
    /// matches every value.
    #[must_use]
    pub fn value(&self) -> &str {
        self.composite[self.key_length..]
            .strip_prefix('_')
            .unwrap_or_default()
    }
}
