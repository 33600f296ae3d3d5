//! Counters: one shard per core, summed when somebody reads them.
//!
//! **Invariant:** a call uses the shard of its own core only, so it waits for the lock only while a reader copies the shard.

mod name;
mod prometheus;
mod snapshot;
mod stats;

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hashbrown::HashMap;
use tidegate_api::Activity;
use tidegate_pipeline::Client;
use tidegate_ratelimit::{Facts, Limiter, MemoryStore, Tally};

use crate::settings::{self, ResponseTime};

/// Counts the limits for which there was no room among the names.
const OVERFLOW: &str = "_overflow";

/// Upper bounds of the response time histogram, as text, in seconds, and in microseconds.
const BUCKETS: [(&str, u64); 11] = [
    ("0.005", 5_000),
    ("0.01", 10_000),
    ("0.025", 25_000),
    ("0.05", 50_000),
    ("0.1", 100_000),
    ("0.25", 250_000),
    ("0.5", 500_000),
    ("1", 1_000_000),
    ("2.5", 2_500_000),
    ("5", 5_000_000),
    ("10", 10_000_000),
];

/// A unary gRPC method that is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    ShouldRateLimit,
    Check,
}

const METHODS: [(Method, &str); 2] = [(Method::ShouldRateLimit, "ShouldRateLimit"), (Method::Check, "Check")];

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

#[derive(Debug, Clone, Default)]
struct Counts {
    limits: HashMap<Arc<str>, LimitCounts>,
    unknown_domains: HashMap<Arc<str>, u64>,
    global_shadow_mode: u64,
    store_errors: u64,
    service_errors: u64,
    methods: [MethodCounts; METHODS.len()],
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct LimitCounts {
    total_hits: u64,
    over_limit: u64,
    near_limit: u64,
    within_limit: u64,
    over_limit_with_local_cache: u64,
    shadow_mode: u64,
    total_negative_hits: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct MethodCounts {
    calls: u64,
    /// Sum of response times.
    microseconds: u64,
    /// Calls per bucket, not cumulative. Calls beyond the last bound are only in `calls`.
    buckets: [u64; BUCKETS.len()],
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

impl MethodCounts {
    fn observe(&mut self, microseconds: u64, unit: ResponseTime) {
        self.calls += 1;
        self.microseconds = self.microseconds.saturating_add(microseconds);
        // Old dashboards expect milliseconds in buckets that are named in seconds.
        let value = match unit {
            ResponseTime::Seconds => microseconds,
            ResponseTime::Milliseconds => microseconds.saturating_mul(1_000),
        };
        if let Some(at) = BUCKETS.iter().position(|&(_, bound)| value <= bound) {
            self.buckets[at] += 1;
        }
    }
}

impl LimitCounts {
    /// Adds the hits of one call. Clients choose their number, so a sum wraps around instead of ending the process.
    fn add(&mut self, tally: &Tally) {
        for (count, more) in [
            (&mut self.total_hits, tally.total_hits),
            (&mut self.over_limit, tally.over_limit),
            (&mut self.near_limit, tally.near_limit),
            (&mut self.within_limit, tally.within_limit),
            (&mut self.over_limit_with_local_cache, tally.over_limit_with_local_cache),
            (&mut self.shadow_mode, tally.shadow_mode),
            (&mut self.total_negative_hits, tally.total_negative_hits),
        ] {
            *count = count.wrapping_add(more);
        }
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
