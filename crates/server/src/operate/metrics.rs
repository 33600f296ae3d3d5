//! Counters: a shard for each core, summed when somebody reads them.
//!
//! **Invariant:** a call writes to the shard of its own core only. A reader never holds a lock of a shard for longer than it takes to
//! swap two pointers.

mod limit_counts;
mod made_names;
mod method_counts;
mod name;
mod prometheus;
mod registry;
mod shard;
mod slots;
mod snapshot;
mod stats;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tidegate_api::Activity;
use tidegate_pipeline::Client;
use tidegate_ratelimit::{Configuration, Limiter, MemoryStore};

use crate::settings;
use limit_counts::LimitCounts;
use made_names::MadeTotals;
pub(crate) use method_counts::Method;
use method_counts::{BUCKETS, METHODS, MethodCounts};
use registry::Registry;
pub(crate) use shard::Shard;

/// Counts the limits for which there was no room among the names.
const OVERFLOW: &str = "_overflow";

/// Why a call failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The store failed.
    Store,
    /// The request is invalid, or no configuration is loaded.
    Service,
}

/// Everything the server counts.
#[derive(Debug)]
pub(crate) struct Metrics {
    settings: settings::Metrics,
    shards: Vec<Arc<Shard>>,
    registry: Mutex<Registry>,
    made: Mutex<MadeTotals>,
    pub(crate) loads: Loads,
    sources: Mutex<Sources>,
}

/// Counts of loading the configuration.
#[derive(Debug, Default)]
pub(crate) struct Loads {
    pub(crate) success: AtomicU64,
    pub(crate) error: AtomicU64,
    /// Times the files were read.
    pub(crate) attempts: AtomicU64,
    /// Files that could not be read.
    pub(crate) failures: AtomicU64,
    /// Files in use.
    pub(crate) files: AtomicU64,
}

/// What is asked for more values when somebody reads.
#[derive(Debug, Default)]
struct Sources {
    limiter: Option<Limiter>,
    memory: Option<MemoryStore>,
    redis: Vec<Client>,
    redis_per_second: Vec<Client>,
    workflows: Option<Arc<Activity>>,
}

impl Metrics {
    /// Counters for this many cores.
    pub(crate) fn new(settings: settings::Metrics, cores: usize) -> Self {
        let shards = (0..cores).map(|_| Arc::new(Shard::new(&settings))).collect();
        Self {
            settings,
            shards,
            registry: Mutex::default(),
            made: Mutex::new(MadeTotals::new(Instant::now())),
            loads: Loads::default(),
            sources: Mutex::default(),
        }
    }

    /// The counters of one core.
    pub(crate) fn shard(&self, core: usize) -> Arc<Shard> {
        self.shards[core].clone()
    }

    /// From now on, reads the gauges of this limiter's cache and the size of this store.
    pub(crate) fn watch(&self, limiter: Limiter, memory: Option<MemoryStore>) {
        let mut sources = lock(&self.sources);
        sources.limiter = Some(limiter);
        sources.memory = memory;
    }

    /// From now on, reads the statistics of these clients.
    pub(crate) fn watch_redis(&self, main: Client, per_second: Option<Client>) {
        let mut sources = lock(&self.sources);
        sources.redis.push(main);
        sources.redis_per_second.extend(per_second);
    }

    /// From now on, reads these counters of workflows.
    pub(crate) fn watch_workflows(&self, activity: Arc<Activity>) {
        lock(&self.sources).workflows = Some(activity);
    }

    /// Makes room for the counts of a configuration, whatever the bound on names, and shows its limits from now on. Limits of other
    /// configurations are forgotten. Must be called before the limiter gets the configuration.
    pub(crate) fn declare(&self, configuration: Configuration) -> Arc<Configuration> {
        let mut registry = lock(&self.registry);
        let (configuration, freed) = registry.declare(configuration);
        for slot in freed {
            self.shards.iter().for_each(|shard| shard.limits.clear(slot));
        }
        configuration
    }

    /// The text for Prometheus.
    pub(crate) fn prometheus(&self) -> String {
        prometheus::encode(&self.snapshot(), &self.settings)
    }

    /// Every counter under the reference's name, sorted, a line each.
    pub(crate) fn stats(&self) -> String {
        stats::encode(&self.snapshot())
    }
}

/// Locks even after a panic of another holder: each addition is complete or absent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Relaxed)
}
