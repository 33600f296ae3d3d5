//! Stats keys: the names of limits in statistics.

use super::{Limit, NodeMatches};
use crate::model::Entry;

/// The name of a limit in statistics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StatsKey {
    /// The name of a configured limit. The slot is the one that
    /// [`crate::Configuration::assign_slots`] set.
    Configured {
        /// Limits with equal names have the same slot.
        slot: u32,
    },
    /// A name of keys and values of the request.
    FromRequest {
        /// `domain.key_value.subkey`, not sanitised.
        name: Box<str>,
        /// The slot of the configured limit of the hits. `None` if the limit is in the request.
        configured_slot: Option<u32>,
    },
}

impl Default for StatsKey {
    /// Returns the empty name.
    fn default() -> Self {
        Self::FromRequest {
            name: Box::default(),
            configured_slot: None,
        }
    }
}

/// Returns the stats key of a limit: the path in the configuration, unless a node on the path
/// includes the request's values.
#[inline]
pub(super) fn stats_key(
    limit: &Limit,
    domain: &str,
    entries: &[Entry],
    nodes: &NodeMatches<'_>,
) -> StatsKey {
    let pairs = || entries.iter().zip(nodes);
    if limit.detailed_metric {
        let any_shared = nodes.iter().any(|node| node.shared_value().is_some());
        let mut key = StatsKeyBuilder::new(domain);
        for (entry, node) in pairs() {
            match node.shared_value() {
                None if !any_shared => key.entry_with_value(&entry.key, &entry.value),
                shared => key.entry(&entry.key, shared.unwrap_or(&entry.value)),
            }
        }
        return StatsKey::FromRequest {
            name: key.0.into(),
            configured_slot: Some(limit.slot),
        };
    }
    if pairs().any(|(entry, node)| node.may_change_stats_key(entry)) {
        let mut key = StatsKeyBuilder::new(domain);
        for (entry, node) in pairs() {
            key.entry(&entry.key, node.metric_value(entry));
        }
        if *key.0 != *limit.stats_key {
            return StatsKey::FromRequest {
                name: key.0.into(),
                configured_slot: Some(limit.slot),
            };
        }
    }
    StatsKey::Configured { slot: limit.slot }
}

/// Builds a stats key.
struct StatsKeyBuilder(String);

impl StatsKeyBuilder {
    fn new(domain: &str) -> Self {
        Self(domain.to_owned())
    }

    fn entry(&mut self, key: &str, value: &str) {
        if value.is_empty() {
            self.0.push('.');
            self.0.push_str(key);
        } else {
            self.entry_with_value(key, value);
        }
    }

    fn entry_with_value(&mut self, key: &str, value: &str) {
        for part in [".", key, "_", value] {
            self.0.push_str(part);
        }
    }
}

/// Returns the stats key of a limit in a request.
pub(crate) fn override_stats_key(domain: &str, entries: &[Entry]) -> StatsKey {
    if entries.is_empty() {
        return StatsKey::FromRequest {
            name: format!("{domain}.").into(),
            configured_slot: None,
        };
    }
    let mut key = StatsKeyBuilder::new(domain);
    for entry in entries {
        key.entry(&entry.key, &entry.value);
    }
    StatsKey::FromRequest {
        name: key.0.into(),
        configured_slot: None,
    }
}
