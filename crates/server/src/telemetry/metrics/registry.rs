//! Registry of configured limits and their slots.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};

use tidegate_ratelimit::Configuration;

/// Slots of configured limits. A name keeps its slot as long as a configuration contains it.
#[derive(Debug, Default)]
pub(super) struct Registry {
    slots: HashMap<Box<str>, u32>,
    /// Slots below the highest one that are not in use.
    free: Vec<u32>,
    /// Configurations in use; the last one is current. A call counts under the slots of the
    /// configuration that it began with.
    loaded: Vec<Weak<Configuration>>,
    /// Slots of the current configuration.
    current: Vec<u32>,
}

impl Registry {
    /// Assigns a slot to every limit of the configuration, and makes the configuration current.
    /// Returns it with the slots that no configuration in use has any more. Their counts must be
    /// reset before the registry is used again.
    pub(super) fn declare(
        &mut self,
        mut configuration: Configuration,
    ) -> (Arc<Configuration>, Vec<u32>) {
        let freed = self.forget(&configuration);
        for key in configuration.stats_keys() {
            if !self.slots.contains_key(key) {
                // Used and free slots together are all slots so far, so this is the next one.
                let next =
                    u32::try_from(self.slots.len()).expect("files are bounded to far fewer limits");
                let slot = self.free.pop().unwrap_or(next);
                self.slots.insert(key.into(), slot);
            }
        }
        configuration.assign_slots(|key| self.slots[key]);
        self.current = configuration
            .stats_keys()
            .map(|key| self.slots[key])
            .collect();
        self.current.dedup();
        let configuration = Arc::new(configuration);
        self.loaded.push(Arc::downgrade(&configuration));
        (configuration, freed)
    }

    /// Slots of all limits in the current configuration, one for each name.
    pub(super) fn slots(&self) -> &[u32] {
        &self.current
    }

    /// Names and slots of all limits in the current configuration.
    pub(super) fn current(&self) -> impl Iterator<Item = (String, u32)> {
        let current = self.loaded.last().and_then(Weak::upgrade);
        let mut keys: Vec<String> = current
            .iter()
            .flat_map(|current| current.stats_keys().map(str::to_owned))
            .collect();
        keys.dedup();
        keys.into_iter().map(|key| {
            let slot = self.slots[&*key];
            (key, slot)
        })
    }

    /// Frees the slots of names that neither a configuration in use nor `next` contains.
    fn forget(&mut self, next: &Configuration) -> Vec<u32> {
        self.loaded
            .retain(|configuration| configuration.strong_count() > 0);
        let loaded: Vec<_> = self.loaded.iter().filter_map(Weak::upgrade).collect();
        let kept: HashSet<&str> = loaded
            .iter()
            .map(AsRef::as_ref)
            .chain([next])
            .flat_map(Configuration::stats_keys)
            .collect();
        let freed: Vec<u32> = self
            .slots
            .extract_if(|key, _| !kept.contains(&**key))
            .map(|(_, slot)| slot)
            .collect();
        self.free.extend(&freed);
        freed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_ratelimit::{SameDomain, Source};

    fn configuration(keys: &[&str]) -> Configuration {
        let descriptor = |key: &&str| {
            format!("  - {{key: {key}, rate_limit: {{unit: day, requests_per_unit: 1}}}}\n")
        };
        let text = format!(
            "domain: d\ndescriptors:\n{}",
            keys.iter().map(descriptor).collect::<String>()
        );
        let source = Source {
            name: "d.yaml".into(),
            text: text.into(),
        };
        Configuration::load(&[source], SameDomain::Refuse).unwrap()
    }

    fn current(registry: &Registry) -> Vec<(String, u32)> {
        registry.current().collect()
    }

    #[test]
    fn slots_stay_with_their_names_and_are_used_again_when_nobody_counts_there() {
        let mut registry = Registry::default();
        let (first, freed) = registry.declare(configuration(&["a", "b"]));
        assert_eq!(
            (current(&registry), freed),
            (vec![("d.a".to_owned(), 0), ("d.b".to_owned(), 1)], vec![])
        );

        // Calls still count under the first configuration.
        let (second, freed) = registry.declare(configuration(&["b", "c"]));
        assert_eq!(
            (current(&registry), freed),
            (vec![("d.b".to_owned(), 1), ("d.c".to_owned(), 2)], vec![])
        );

        drop(first);
        let (third, freed) = registry.declare(configuration(&["c", "d"]));
        assert_eq!(
            (current(&registry), freed),
            (vec![("d.c".to_owned(), 2), ("d.d".to_owned(), 0)], vec![0])
        );
        drop((second, third));
    }

    #[test]
    fn a_thousand_reloads_need_no_more_slots_than_two_configurations() {
        let mut registry = Registry::default();
        let mut kept = None;
        for number in 0..1_000 {
            let (configuration, _) = registry.declare(configuration(&[&format!("a{number}"), "b"]));
            kept = Some(configuration);
        }
        assert!(
            kept.is_some() && current(&registry).iter().all(|(_, slot)| *slot < 4),
            "{registry:?}"
        );
        assert!(registry.slots.len() < 4, "{registry:?}");
    }
}
