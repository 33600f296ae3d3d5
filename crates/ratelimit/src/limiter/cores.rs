//! The state of each core, separate so that no core writes memory that another one uses.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwapOption;
use hashbrown::DefaultHashBuilder;

use super::sketch;
use super::{ActiveConfig, CoreActiveConfig, CoreSketch, KeyMinute, Sketch};
use crate::config::Configuration;
use crate::model::Timestamp;
use crate::overrides::Overrides;

/// The part of a limiter that belongs to one core.
// 128 bytes: processors fetch cache lines of 64 bytes in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Core {
    active: ArcSwapOption<ActiveConfig>,
    pub(super) lookups: CacheLookups,
    pub(super) sketch: CoreSketch,
}

/// Counts of look-ups in the local cache.
#[derive(Debug, Default)]
pub(super) struct CacheLookups {
    pub(super) hits: AtomicU64,
    pub(super) misses: AtomicU64,
    pub(super) expired: AtomicU64,
}

impl Core {
    /// Returns the active configuration. `None` before the first one. The call changes a reference
    /// count of this core only.
    pub(super) fn active(&self) -> Option<CoreActiveConfig> {
        self.active.load_full()
    }
}

impl CacheLookups {
    /// Adds these counts to `sum`.
    pub(super) fn add_to(&self, sum: &Self) {
        for (from, into) in [
            (&self.hits, &sum.hits),
            (&self.misses, &sum.misses),
            (&self.expired, &sum.expired),
        ] {
            into.fetch_add(from.load(Relaxed), Relaxed);
        }
    }
}

/// All cores of a limiter, and their common state. Not for the path of a check.
#[derive(Debug, Default)]
pub(super) struct Cores(Mutex<CoreRegistry>);

#[derive(Debug, Default)]
struct CoreRegistry {
    configuration: Option<Arc<Configuration>>,
    overrides: Arc<Overrides>,
    cores: Vec<Arc<Core>>,
    /// Hashes keys for the sketches of all cores.
    hasher: DefaultHashBuilder,
}

impl Cores {
    /// Adds a core with the current configuration.
    pub(super) fn add(&self) -> Arc<Core> {
        let mut registry = self.lock();
        let core = Arc::new(Core {
            sketch: CoreSketch::new(registry.hasher.clone()),
            ..Core::default()
        });
        core.active.store(registry.new_active());
        registry.cores.push(core.clone());
        core
    }

    /// Sets the configuration of every core.
    pub(super) fn configure(&self, configuration: Arc<Configuration>) {
        let mut registry = self.lock();
        registry.configuration = Some(configuration);
        registry.update_cores();
    }

    /// Sets the overrides of every core.
    pub(super) fn set_overrides(&self, overrides: Arc<Overrides>) {
        let mut registry = self.lock();
        registry.overrides = overrides;
        registry.update_cores();
    }

    /// Sets the overrides of every core, unless others than `known` are active. Returns whether
    /// they were set.
    pub(super) fn replace_overrides(
        &self,
        known: &Arc<Overrides>,
        overrides: Arc<Overrides>,
    ) -> bool {
        let mut registry = self.lock();
        let is_known = Arc::ptr_eq(&registry.overrides, known);
        if is_known {
            registry.overrides = overrides;
            registry.update_cores();
        }
        is_known
    }

    pub(super) fn overrides(&self) -> Arc<Overrides> {
        self.lock().overrides.clone()
    }

    pub(super) fn configuration(&self) -> Option<Arc<Configuration>> {
        self.lock().configuration.clone()
    }

    /// Returns the merged sketch of all cores.
    pub(super) fn sketch(&self, now: Timestamp) -> Sketch {
        sketch::merge(self.lock().cores.iter().map(|core| &core.sketch), now)
    }

    /// Returns the keys that all cores counted in the previous minute and in the current one.
    pub(super) fn key_minutes(&self, now: Timestamp) -> [KeyMinute; 2] {
        sketch::key_minutes(self.lock().cores.iter().map(|core| &core.sketch), now)
    }

    /// Returns the sum of the look-ups of all cores.
    pub(super) fn lookups(&self) -> CacheLookups {
        let sum = CacheLookups::default();
        self.lock()
            .cores
            .iter()
            .for_each(|core| core.lookups.add_to(&sum));
        sum
    }

    /// No change under the lock can panic half way, so a poisoned lock is safe to use.
    fn lock(&self) -> MutexGuard<'_, CoreRegistry> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CoreRegistry {
    /// Returns the active configuration with a separate reference count for one core.
    fn new_active(&self) -> Option<Arc<ActiveConfig>> {
        let overrides = Some(&self.overrides).filter(|overrides| !overrides.is_empty());
        let new_config = |configuration: &Arc<Configuration>| {
            Arc::new(ActiveConfig {
                configuration: configuration.clone(),
                overrides: overrides.cloned(),
            })
        };
        self.configuration.as_ref().map(new_config)
    }

    fn update_cores(&self) {
        for core in &self.cores {
            core.active.store(self.new_active());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SameDomain;

    fn configuration() -> Arc<Configuration> {
        Arc::new(Configuration::load(&[], SameDomain::Refuse).unwrap())
    }

    #[test]
    fn every_core_has_the_configuration_under_a_count_of_its_own() {
        let cores = Cores::default();
        let early = cores.add();
        assert!(early.active().is_none());
        let shared = configuration();
        cores.configure(shared.clone());
        let late = cores.add();
        // Ours, that of the list, and one for each core.
        assert_eq!(Arc::strong_count(&shared), 4);
        let held: Vec<_> = [&early, &late, &late]
            .iter()
            .map(|core| core.active().unwrap())
            .collect();
        assert_eq!(
            Arc::strong_count(&shared),
            4,
            "taking it does not touch the count that cores share"
        );
        assert!(Arc::ptr_eq(&held[1], &held[2]) && !Arc::ptr_eq(&held[0], &held[1]));
        assert!(
            held.iter()
                .all(|held| Arc::ptr_eq(&held.configuration, &shared))
        );

        cores.configure(configuration());
        assert_eq!(
            Arc::strong_count(&shared),
            3,
            "calls that run keep what they began with"
        );
        drop(held);
        assert_eq!(Arc::strong_count(&shared), 1);
    }
}
