//! The names of limits in statistics.

use std::sync::Arc;

use super::{Limit, Steps};
use crate::request::Entry;

/// The name under which hits are counted: the path in the configuration, unless a node on it asks for the request's values.
pub(super) fn stats_key(limit: &Limit, domain: &str, entries: &[Entry], steps: &Steps<'_>) -> Arc<str> {
    let pairs = || entries.iter().zip(steps);
    if limit.detailed_metric {
        let any_shared = steps.iter().any(|step| step.shared().is_some());
        let mut name = Name::new(domain);
        for (entry, step) in pairs() {
            match step.shared() {
                None if !any_shared => name.entry_with_value(&entry.key, &entry.value),
                shared => name.entry(&entry.key, shared.unwrap_or(&entry.value)),
            }
        }
        return name.0.into();
    }
    if pairs().any(|(entry, step)| step.may_rename(entry)) {
        let mut name = Name::new(domain);
        for (entry, step) in pairs() {
            name.entry(&entry.key, step.metric_value(entry));
        }
        if *name.0 != *limit.stats_key {
            return name.0.into();
        }
    }
    Arc::clone(&limit.stats_key)
}

/// A stats key in the making.
struct Name(String);

impl Name {
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

/// The stats key of a limit that the request brings along.
pub(crate) fn override_stats_key(domain: &str, entries: &[Entry]) -> Arc<str> {
    if entries.is_empty() {
        return format!("{domain}.").into();
    }
    let mut name = Name::new(domain);
    for entry in entries {
        name.entry(&entry.key, &entry.value);
    }
    name.0.into()
}
