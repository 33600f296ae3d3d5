//! What each core has of its own, so that no core writes memory that another one uses.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwapOption;

use crate::config::Configuration;
use crate::response::CoreConfiguration;

/// The part of a limiter that belongs to one core.
// 128 bytes: processors fetch lines of 64 bytes in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Core {
    configuration: ArcSwapOption<Arc<Configuration>>,
    pub(super) lookups: Lookups,
}

/// What lookups in the local cache found.
#[derive(Debug, Default)]
pub(super) struct Lookups {
    pub(super) hits: AtomicU64,
    pub(super) misses: AtomicU64,
    pub(super) expired: AtomicU64,
}

impl Core {
    /// The current configuration. Taking it changes a reference count of this core only.
    pub(super) fn configuration(&self) -> Option<CoreConfiguration> {
        self.configuration.load_full()
    }
}

impl Lookups {
    /// Adds these figures to `sum`.
    pub(super) fn add_to(&self, sum: &Self) {
        for (from, into) in [(&self.hits, &sum.hits), (&self.misses, &sum.misses), (&self.expired, &sum.expired)] {
            into.fetch_add(from.load(Relaxed), Relaxed);
        }
    }
}

/// All cores of a limiter, and the configuration that they have. Not for the data path.
#[derive(Debug, Default)]
pub(super) struct Cores(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    configuration: Option<Arc<Configuration>>,
    cores: Vec<Arc<Core>>,
}

impl Cores {
    /// One more core, with the current configuration.
    pub(super) fn add(&self) -> Arc<Core> {
        let core = Arc::new(Core::default());
        let mut known = self.lock();
        core.configuration.store(known.configuration.clone().map(Arc::new));
        known.cores.push(core.clone());
        core
    }

    /// Gives every core the configuration.
    pub(super) fn configure(&self, configuration: Arc<Configuration>) {
        let mut known = self.lock();
        for core in &known.cores {
            core.configuration.store(Some(Arc::new(configuration.clone())));
        }
        known.configuration = Some(configuration);
    }

    pub(super) fn configuration(&self) -> Option<Arc<Configuration>> {
        self.lock().configuration.clone()
    }

    /// What lookups of all cores found.
    pub(super) fn lookups(&self) -> Lookups {
        let sum = Lookups::default();
        self.lock().cores.iter().for_each(|core| core.lookups.add_to(&sum));
        sum
    }

    /// Nothing is left half done by a panic, so that a poisoned lock can be used.
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
        assert!(early.configuration().is_none());
        let shared = configuration();
        cores.configure(shared.clone());
        let late = cores.add();
        // Ours, that of the list, and one for each core.
        assert_eq!(Arc::strong_count(&shared), 4);
        let held: Vec<_> = [&early, &late, &late].iter().map(|core| core.configuration().unwrap()).collect();
        assert_eq!(Arc::strong_count(&shared), 4, "taking it does not touch the count that cores share");
        assert!(Arc::ptr_eq(&held[1], &held[2]) && !Arc::ptr_eq(&held[0], &held[1]));
        assert!(held.iter().all(|held| Arc::ptr_eq(&**held, &shared)));

        cores.configure(configuration());
        assert_eq!(Arc::strong_count(&shared), 3, "calls that run keep what they began with");
        drop(held);
        assert_eq!(Arc::strong_count(&shared), 1);
    }
}
