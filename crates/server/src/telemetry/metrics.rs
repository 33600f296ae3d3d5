//! Counters: a shard for each core, summed when somebody reads them.
//!
//! **Invariant:** a call writes to the shard of its own core only. A reader never holds a lock of a shard for longer than it takes to
//! swap two pointers.

pub(crate) mod dotted;
mod dynamic_series;
mod limit_counts;
mod memcache;
mod method_counts;
mod name;
mod prometheus;
mod registry;
mod shard;
mod shared;
mod slots;
mod snapshot;
mod sources;
mod statsd_counts;

use std::mem;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use tidegate_api::{Activity, Availability, LimitUse, Totals};
use tidegate_pipeline::Client;
use tidegate_ratelimit::{Configuration, Limiter, MemoryStore};

use crate::net::bounds::Bounds;
use crate::net::clock;
use crate::settings;
use crate::telemetry::counter_store_health;
use crate::telemetry::traces::Traces;
use crate::tls;

use dynamic_series::MadeTotals;
use limit_counts::LimitCounts;
pub(crate) use method_counts::Method;
use prometheus::Mapped;

use registry::Registry;
pub(crate) use shard::{Failure, Part, Shard};
use shared::{lock, read};
pub(crate) use snapshot::Snapshot;
use sources::Sources;
use statsd_counts::StatsdCounts;

/// Counts the limits for which there was no room among the names.
const OVERFLOW: &str = "_overflow";

/// Everything the server counts.
#[derive(Debug)]
pub(crate) struct Metrics {
    settings: settings::Metrics,
    shards: Vec<Arc<Shard>>,
    registry: Mutex<Registry>,
    made: Mutex<MadeTotals>,
    pub(crate) loads: Loads,
    pub(crate) certificates: tls::Counts,
    pub(crate) sent: StatsdCounts,
    /// What a mapping file makes of names.
    mapped: Option<Mutex<Mapped>>,
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
    /// Those of them that cannot be read and keep their last text.
    pub(crate) kept: AtomicU64,
}

impl Metrics {
    /// Counters for this many cores, and for the limits of jobs.
    pub(crate) fn new(settings: settings::Metrics, cores: usize) -> Self {
        let shards = (0..=cores)
            .map(|_| Arc::new(Shard::new(&settings)))
            .collect();
        let mapped = settings
            .mapping
            .clone()
            .map(|rules| Mutex::new(Mapped::new(rules, &settings.labels)));
        Self {
            mapped,
            settings,
            shards,
            registry: Mutex::default(),
            made: Mutex::new(MadeTotals::new(Instant::now())),
            loads: Loads::default(),
            certificates: tls::Counts::default(),
            sent: StatsdCounts::default(),
            sources: Mutex::default(),
        }
    }

    /// The tags of every metric.
    pub(crate) fn tags(&self) -> &[(String, String)] {
        &self.settings.labels
    }

    /// The counters of one core.
    pub(crate) fn shard(&self, core: usize) -> Arc<Shard> {
        self.shards[core].clone()
    }

    /// The counters of what jobs take under limits.
    pub(crate) fn shard_of_jobs(&self) -> Arc<Shard> {
        self.shards
            .last()
            .expect("there is one more than cores")
            .clone()
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

    /// From now on, reads the statistics of this client.
    pub(crate) fn watch_memcache(&self, client: tidegate_memcache::Client) {
        lock(&self.sources).memcache.push(client);
    }

    /// From now on, reads the statistics of these clients of the store of workflows, and of no others.
    pub(crate) fn watch_redis_of_workflows(&self, clients: Vec<Client>) {
        lock(&self.sources).redis_of_workflows = clients;
    }

    /// From now on, reads these counters of workflows.
    pub(crate) fn watch_workflows(&self, activity: Arc<Activity>) {
        lock(&self.sources).workflows = Some(activity);
    }

    /// From now on, shows what these bounds did.
    pub(crate) fn watch_port(&self, bounds: Bounds) {
        lock(&self.sources).ports.push(bounds);
    }

    /// From now on, shows whether there is a stream from the management server.
    pub(crate) fn watch_management(&self, connected: Arc<AtomicU64>) {
        lock(&self.sources).management = Some(connected);
    }

    /// From now on, shows what became of these traces.
    pub(crate) fn watch_traces(&self, traces: Traces) {
        lock(&self.sources).traces = Some(traces);
    }

    /// Makes room for the counts of a configuration, whatever the bound on names, and shows its limits from now on. Limits of other
    /// configurations are forgotten. Must be called before the limiter gets the configuration.
    pub(crate) fn declare(&self, configuration: Configuration) -> Arc<Configuration> {
        let mut registry = lock(&self.registry);
        let (configuration, freed) = registry.declare(configuration);
        // What was counted of them is taken from the cores before their slots belong to others.
        let mut made = self.made(self.room(&registry));
        for slot in freed {
            self.shards
                .iter()
                .for_each(|shard| shard.limits.clear(slot));
            made.clear(slot);
        }
        configuration
    }

    /// Whether the store of counters counts, by the latest calls.
    pub(crate) fn counting(&self) -> Availability {
        counter_store_health::all(
            self.shards.iter().map(|shard| &shard.store),
            clock::now().0 / 1_000_000,
        )
    }

    /// The text for Prometheus.
    pub(crate) fn prometheus(&self) -> String {
        prometheus::encode(
            &self.snapshot(),
            &self.settings,
            self.mapped.as_ref().map(lock),
        )
    }

    /// Every counter under the reference's name, sorted, a line each.
    pub(crate) fn stats(&self) -> String {
        dotted::encode(&self.snapshot())
    }

    /// All counters at this moment.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let mut sum = Snapshot::default();
        let global_shadow_mode = self
            .shards
            .iter()
            .map(|shard| read(&shard.global_shadow_mode))
            .sum();
        self.shards.iter().for_each(|shard| sum.add(shard));
        self.add_limits(&mut sum);
        sum.counters = vec![
            (
                "ratelimit.service.config_load_success",
                read(&self.loads.success),
            ),
            (
                "ratelimit.service.config_load_error",
                read(&self.loads.error),
            ),
            ("ratelimit.service.global_shadow_mode", global_shadow_mode),
            ("runtime.load_attempts", read(&self.loads.attempts)),
            ("runtime.load_failures", read(&self.loads.failures)),
        ];
        sum.gauges = vec![
            ("runtime.num_values", read(&self.loads.files)),
            ("tidegate.config.kept_files", read(&self.loads.kept)),
        ];
        if let Some(sample) = self
            .certificates
            .sample((clock::now().0 / 1_000_000).cast_signed())
        {
            sum.counters.extend(sample.counters());
            sum.gauges.extend(sample.gauges());
        }
        if self.settings.statsd.is_some() {
            sum.counters.extend(self.sent.each());
        }
        lock(&self.sources).add_to(&mut sum);
        sum
    }

    /// What the gateway has counted, for the overview.
    pub(crate) fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for shard in &self.shards {
            totals.calls += shard.add_decisions(&mut totals.times);
            totals.failed += read(&shard.store_errors) + read(&shard.service_errors);
        }
        let mut add = |counts: LimitCounts| {
            totals.within_limit = totals.within_limit.saturating_add(counts.within_limit);
            totals.near_limit = totals.near_limit.saturating_add(counts.near_limit);
            totals.over_limit = totals.over_limit.saturating_add(counts.over_limit);
        };
        let registry = lock(&self.registry);
        for slot in registry.slots() {
            self.shards
                .iter()
                .for_each(|shard| add(shard.limits.read(*slot)));
        }
        let room = self.room(&registry);
        drop(registry);
        add(self.made(room).sum);
        totals
    }

    /// What was counted of the limits with these slots, which a configuration that the caller holds has.
    pub(crate) fn uses(&self, slots: &[u32]) -> Vec<LimitUse> {
        let room = self.room(&lock(&self.registry));
        let made = self.made(room);
        let of_slot = |slot: &u32| {
            let mut counts = made.of_slot(*slot);
            self.shards
                .iter()
                .for_each(|shard| counts.merge(&shard.limits.read(*slot)));
            LimitUse {
                hits: counts.total_hits,
                within_limit: counts.within_limit,
                near_limit: counts.near_limit,
                over_limit: counts.over_limit,
                shadow_mode: counts.shadow_mode,
            }
        };
        slots.iter().map(of_slot).collect()
    }

    /// How many names that calls make have room beside those of the configuration.
    fn room(&self, registry: &Registry) -> usize {
        self.settings
            .max_names
            .saturating_sub(registry.slots().len())
    }

    /// Adds the counts of all limits and unknown domains.
    fn add_limits(&self, sum: &mut Snapshot) {
        let registry = lock(&self.registry);
        for (key, slot) in registry.current() {
            let limit = sum.limits.entry(name::sanitized(&key)).or_default();
            self.shards
                .iter()
                .for_each(|shard| limit.merge(&shard.limits.read(slot)));
        }
        let room = self.room(&registry);
        drop(registry);

        let made = self.made(room);
        let overflow = made.more_limits.iter().map(|counts| (OVERFLOW, counts));
        for (key, limit) in made.limits.iter().chain(overflow) {
            sum.limits
                .entry(name::sanitized(key))
                .or_default()
                .merge(limit);
        }
        let overflow = Some((OVERFLOW, &made.more_domains)).filter(|(_, count)| **count > 0);
        for (domain, count) in made.unknown_domains.iter().chain(overflow) {
            *sum.unknown_domains
                .entry(name::sanitized(domain))
                .or_default() += count;
        }
    }

    /// What was counted under names that calls made, with room for so many.
    fn made(&self, room: usize) -> MutexGuard<'_, MadeTotals> {
        let mut made = lock(&self.made);
        let now = Instant::now();
        for shard in &self.shards {
            let names = mem::take(&mut *lock(&shard.made));
            made.add(names, room, now);
        }
        made
    }
}
