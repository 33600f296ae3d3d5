//! Counters: one shard per core, summed when somebody reads them.
//!
//! **Invariant:** a call uses the shard of its own core only, so it waits for the lock only while a reader copies the shard.

mod counts;
mod name;
mod prometheus;
mod snapshot;
mod stats;

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_api::Activity;
use tidegate_pipeline::Client;
use tidegate_ratelimit::{Facts, Limiter, MemoryStore};

use crate::settings::{self, ResponseTime};
use counts::Counts;
pub(crate) use counts::Method;
use snapshot::{Snapshot, cache_gauges, total};

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
    names: Arc<Names>,
    shards: Vec<Arc<Shard>>,
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

/// The counters of one core.
#[derive(Debug)]
pub(crate) struct Shard {
    names: Arc<Names>,
    unit: ResponseTime,
    counts: Mutex<Counts>,
}

/// The names in use by all shards. They come from clients, so their number in the process is bounded.
#[derive(Debug)]
struct Names {
    limit: usize,
    known: Mutex<HashSet<Arc<str>>>,
}

impl Metrics {
    /// Counters for this many cores.
    pub(crate) fn new(settings: settings::Metrics, cores: usize) -> Self {
        let names = Arc::new(Names { limit: settings.max_names, known: Mutex::default() });
        let unit = settings.response_time;
        let shard = || Arc::new(Shard { names: names.clone(), unit, counts: Mutex::default() });
        Self {
            shards: (0..cores).map(|_| shard()).collect(),
            settings,
            names,
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

    /// Creates the counters of configured limits before their first hit, even beyond the bound on names.
    pub(crate) fn declare<'a>(&self, stats_keys: impl Iterator<Item = &'a str>) {
        let Some(first) = self.shards.first() else { return };
        for key in stats_keys {
            let key = self.names.admit_always(key);
            lock(&first.counts).limits.entry(key).or_default();
        }
    }

    /// The text for Prometheus.
    pub(crate) fn prometheus(&self) -> String {
        prometheus::encode(&self.snapshot(), &self.settings)
    }

    /// Every counter under the reference's name, sorted, a line each.
    pub(crate) fn stats(&self) -> String {
        stats::encode(&self.snapshot())
    }

    /// All counters at this moment.
    fn snapshot(&self) -> Snapshot {
        let mut sum = Snapshot::default();
        let mut global_shadow_mode = 0;
        for shard in &self.shards {
            // Copied as a whole, so that the core's calls wait for a short time only.
            let counts = lock(&shard.counts).clone();
            global_shadow_mode += counts.global_shadow_mode;
            sum.add(&counts);
        }
        sum.counters = vec![
            ("ratelimit.service.config_load_success", read(&self.loads.success)),
            ("ratelimit.service.config_load_error", read(&self.loads.error)),
            ("ratelimit.service.global_shadow_mode", global_shadow_mode),
            ("runtime.load_attempts", read(&self.loads.attempts)),
            ("runtime.load_failures", read(&self.loads.failures)),
        ];
        sum.gauges.push(("runtime.num_values".to_owned(), read(&self.loads.files)));
        self.ask_sources(&mut sum);
        sum
    }

    fn ask_sources(&self, sum: &mut Snapshot) {
        let sources = lock(&self.sources);
        if let Some(cache) = sources.limiter.as_ref().and_then(Limiter::local_cache_stats) {
            sum.gauges
                .extend(cache_gauges(&cache).map(|(name, value)| (format!("ratelimit.localcache.{name}"), value)));
        }
        if let Some(memory) = &sources.memory {
            sum.gauges.push(("tidegate.memory.keys".to_owned(), memory.len() as u64));
            sum.gauges.push(("tidegate.memory.bytes".to_owned(), memory.bytes() as u64));
            sum.counters.push(("tidegate.memory.evictions", memory.evictions()));
        }
        if let Some(workflows) = &sources.workflows {
            sum.counters.extend(workflows.each());
            sum.queues = workflows.queues();
        }
        if let Some(total) = total(&sources.redis) {
            sum.add_redis(&total);
        }
        if let Some(total) = total(&sources.redis_per_second) {
            sum.add_redis_per_second(&total);
        }
    }
}

impl Shard {
    /// Counts what happened in one decision on `domain`.
    pub(crate) fn decision(&self, domain: &str, facts: &Facts) {
        let mut counts = lock(&self.counts);
        for tally in &facts.tallies {
            match counts.limits.get_mut(&*tally.stats_key) {
                Some(limit) => limit.add(tally),
                None => {
                    let name = self.names.admit(&tally.stats_key);
                    counts.limits.entry(name).or_default().add(tally);
                }
            }
        }
        if facts.domain_not_found > 0 {
            let name = self.names.admit(domain);
            *counts.unknown_domains.entry(name).or_default() += facts.domain_not_found;
        }
        counts.global_shadow_mode += u64::from(facts.global_shadow_mode);
    }

    /// Counts a call that failed.
    pub(crate) fn failure(&self, failure: Failure) {
        let mut counts = lock(&self.counts);
        match failure {
            Failure::Store => counts.store_errors += 1,
            Failure::Service => counts.service_errors += 1,
        }
    }

    /// Counts a unary gRPC call that took `elapsed`.
    pub(crate) fn call(&self, method: Method, elapsed: Duration) {
        let microseconds = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        lock(&self.counts).methods[method as usize].observe(microseconds, self.unit);
    }
}

impl Names {
    /// `name`, or the name for overflow when there are too many names.
    fn admit(&self, name: &str) -> Arc<str> {
        let mut known = lock(&self.known);
        if let Some(name) = known.get(name) {
            return name.clone();
        }
        if known.len() >= self.limit {
            return OVERFLOW.into();
        }
        let name: Arc<str> = name.into();
        known.insert(name.clone());
        name
    }

    fn admit_always(&self, name: &str) -> Arc<str> {
        let mut known = lock(&self.known);
        if let Some(name) = known.get(name) {
            return name.clone();
        }
        let name: Arc<str> = name.into();
        known.insert(name.clone());
        name
    }
}

/// Locks even after a panic of another holder: each addition is complete or absent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Relaxed)
}
