//! An example request for the limits that are loaded.

use super::{Level, Rate};
use crate::model::request::Entry;

/// The value of an example entry where the configuration allows any value.
const ANY_VALUE: &str = "me";

impl Level {
    /// Returns the entries of a descriptor that the first limit of the file applies to. `None` if
    /// every request is unlimited.
    pub(crate) fn example(&self) -> Option<Vec<Entry>> {
        self.nodes.iter().find_map(|node| {
            let key = node.key();
            let value = node.value();
            let value = if value.is_empty() {
                ANY_VALUE.to_owned()
            } else {
                value.replace('*', ANY_VALUE)
            };
            let mut entries = vec![Entry {
                key: key.to_owned(),
                value,
            }];
            let is_limited = |rate: &Rate| matches!(rate, Rate::PerUnit { .. });
            if !node
                .limit
                .as_ref()
                .is_some_and(|limit| is_limited(&limit.rate))
            {
                entries.extend(node.below.example()?);
            }
            Some(entries)
        })
    }
}
