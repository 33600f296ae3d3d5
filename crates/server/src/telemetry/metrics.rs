//! Metrics: each core has a shard of counters, and a reader sums them.
//!
//! **Invariant:** a call writes only to the shard of its own core. A reader holds a lock of a shard
//! only for the time to swap two pointers.

pub(crate) mod dotted;
mod dynamic_series;
mod limit_counts;
mod memcache;
mod method_counts;
mod name;
mod prometheus;
mod registry;
mod shard;
mod snapshot;
mod statsd_counts;

use std::mem;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use tidegate_api::{ApiMetrics, Availability, GatewayTotals, LimitUse};
use tidegate_pipeline::Client;
use tidegate_ratelimit::{Configuration, Limiter, MemoryStore};

use crate::base::clock;
use crate::net::bounds::PortBounds;
use crate::telemetry::counter_store_health;
use crate::telemetry::traces::Traces;
use crate::{settings, tls};

use dynamic_series::DynamicTotals;
use limit_counts::LimitCounts;
pub(crate) use method_counts::Method;
use prometheus::MappedMetrics;

use registry::Registry;
use shard::shared::{lock, read};
pub(crate) use shard::{CallFailure, ExcessKind, Shard};
pub(crate) use snapshot::Snapshot;
use snapshot::Sources;
use statsd_counts::StatsdCounts;

/// Name of the series that counts limits and domains beyond the limit of names.
const OVERFLOW: &str = "_overflow";

/// All metrics of the server.
#[derive(Debug)]
pub(crate) struct Metrics {
    settings: settings::MetricsSettings,
    shards: Vec<Arc<Shard>>,
    registry: Mutex<Registry>,
    dynamic_totals: Mutex<DynamicTotals>,
    pub(crate) loads: Loads,
    pub(crate) certificates: Arc<tls::ReloadCounts>,
    pub(crate) statsd_counts: StatsdCounts,
    /// State of the mapping file, if there is one.
    mapped: Option<Mutex<MappedMetrics>>,
    sources: Mutex<Sources>,
}

/// Counts of configuration loads.
#[derive(Debug, Default)]
pub(crate) struct Loads {
    pub(crate) success: AtomicU64,
    pub(crate) error: AtomicU64,
    /// Number of times that the files were read.
    pub(crate) attempts: AtomicU64,
    /// Number of files that could not be read.
    pub(crate) failures: AtomicU64,
    /// Number of files in use.
    pub(crate) files: AtomicU64,
    /// Number of files in use that cannot be read and keep their last content.
    pub(crate) kept: AtomicU64,
}

impl Metrics {
    /// Creates counters for `cores` cores, and one more shard for the limits of jobs.
    pub(crate) fn new(settings: settings::MetricsSettings, cores: usize) -> Self {
        let shards = (0..=cores)
            .map(|_| Arc::new(Shard::new(&settings)))
            .collect();
        let mapped = settings
            .mapping
            .clone()
            .map(|rules| Mutex::new(MappedMetrics::new(rules, &settings.labels)));
        Self {
            mapped,
            settings,
            shards,
            registry: Mutex::default(),
            dynamic_totals: Mutex::new(DynamicTotals::new(Instant::now())),
            loads: Loads::default(),
            certificates: Arc::default(),
            statsd_counts: StatsdCounts::default(),
            sources: Mutex::default(),
        }
    }

    /// Tags of every metric.
    pub(crate) fn tags(&self) -> &[(String, String)] {
        &self.settings.labels
    }

    /// Shard of one core.
    pub(crate) fn shard(&self, core: usize) -> Arc<Shard> {
        self.shards[core].clone()
    }

    /// Shard for the limits of jobs.
    pub(crate) fn job_shard(&self) -> Arc<Shard> {
        self.shards
            .last()
            .expect("there is one more than cores")
            .clone()
    }

    /// Adds the gauges of the limiter's cache, and the size of the store, to the metrics.
    pub(crate) fn watch(&self, limiter: Limiter, memory: Option<MemoryStore>) {
        let mut sources = lock(&self.sources);
        sources.limiter = Some(limiter);
        sources.memory = memory;
    }

    /// Adds the statistics of these clients to the metrics.
    pub(crate) fn watch_redis(&self, main: Client, per_second: Option<Client>) {
        let mut sources = lock(&self.sources);
        sources.redis.push(main);
        sources.redis_per_second.extend(per_second);
    }

    /// Adds the statistics of this client to the metrics.
    pub(crate) fn watch_memcache(&self, client: tidegate_memcache::Client) {
        lock(&self.sources).memcache.push(client);
    }

    /// Shows the statistics of these clients of the workflow store, and of no others.
    pub(crate) fn watch_redis_of_workflows(&self, clients: Vec<Client>) {
        lock(&self.sources).redis_of_workflows = clients;
    }

    /// Adds the counters of workflows to the metrics.
    pub(crate) fn watch_workflows(&self, activity: Arc<ApiMetrics>) {
        lock(&self.sources).workflows = Some(activity);
    }

    /// Adds the counts of a port to the metrics.
    pub(crate) fn watch_port(&self, bounds: PortBounds) {
        lock(&self.sources).ports.push(bounds);
    }

    /// Adds the state of the stream from the management server to the metrics.
    pub(crate) fn watch_management(&self, connected: Arc<AtomicU64>) {
        lock(&self.sources).management = Some(connected);
    }

    /// Adds the counts of exported spans to the metrics.
    pub(crate) fn watch_traces(&self, traces: Traces) {
        lock(&self.sources).traces = Some(traces);
    }

    /// Registers the limits of a configuration, whatever the limit of names, and shows them. Limits
    /// of earlier configurations are forgotten. Must be called before the limiter gets the
    /// configuration.
    pub(crate) fn declare(&self, configuration: Configuration) -> Arc<Configuration> {
        let mut registry = lock(&self.registry);
        let (configuration, freed) = registry.declare(configuration);
        // Pending counts of the freed slots are taken from the cores before new limits get the
        // slots.
        let mut dynamic = self.collect_dynamic(self.dynamic_limit(&registry));
        for slot in freed {
            self.shards
                .iter()
                .for_each(|shard| shard.limits.clear(slot));
            dynamic.clear(slot);
        }
        configuration
    }

    /// Health of the counter store, by the latest calls.
    pub(crate) fn store_availability(&self) -> Availability {
        counter_store_health::total_availability(
            self.shards.iter().map(|shard| &shard.store),
            clock::now().0 / 1_000_000,
        )
    }

    /// Text in the format of Prometheus.
    pub(crate) fn prometheus(&self) -> String {
        prometheus::encode(
            &self.snapshot(),
            &self.settings,
            self.mapped.as_ref().map(lock),
        )
    }

    /// Text with all counters under the names of the reference, sorted, one per line.
    pub(crate) fn stats(&self) -> String {
        dotted::encode(&self.snapshot())
    }

    /// Current values of all counters.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let mut sum = Snapshot::default();
        self.shards.iter().for_each(|shard| sum.add(shard));
        self.add_limits(&mut sum);
        let loads = &self.loads;
        sum.counters = vec![
            (
                "ratelimit.service.config_load_success",
                read(&loads.success),
            ),
            ("ratelimit.service.config_load_error", read(&loads.error)),
            (
                "ratelimit.service.global_shadow_mode",
                sum.global_shadow_mode,
            ),
            ("runtime.load_attempts", read(&loads.attempts)),
            ("runtime.load_failures", read(&loads.failures)),
        ];
        sum.gauges = vec![
            ("runtime.num_values", read(&loads.files)),
            ("tidegate.config.kept_files", read(&loads.kept)),
        ];
        let now = (clock::now().0 / 1_000_000).cast_signed();
        let certificates = self.certificates.sample(now);
        sum.counters.extend(certificates.counters);
        sum.gauges.extend(certificates.gauges);
        if self.settings.statsd.is_some() {
            sum.counters.extend(self.statsd_counts.counters());
        }
        lock(&self.sources).add_to(&mut sum);
        sum
    }

    /// Totals of rate limit calls, for the overview.
    pub(crate) fn totals(&self) -> GatewayTotals {
        let mut totals = GatewayTotals::default();
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
        let dynamic_limit = self.dynamic_limit(&registry);
        drop(registry);
        add(self.collect_dynamic(dynamic_limit).sum);
        totals
    }

    /// Uses of the limits with these slots. The caller holds the configuration with the slots.
    pub(crate) fn uses(&self, slots: &[u32]) -> Vec<LimitUse> {
        let dynamic_limit = self.dynamic_limit(&lock(&self.registry));
        let dynamic = self.collect_dynamic(dynamic_limit);
        let of_slot = |slot: &u32| {
            let mut counts = dynamic.of_slot(*slot);
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

    /// Number of dynamic series that are allowed beside the limits of the configuration.
    fn dynamic_limit(&self, registry: &Registry) -> usize {
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
        let dynamic_limit = self.dynamic_limit(&registry);
        drop(registry);

        let dynamic = self.collect_dynamic(dynamic_limit);
        let overflow = dynamic
            .overflow_limits
            .iter()
            .map(|counts| (OVERFLOW, counts));
        for (key, limit) in dynamic.limits.iter().chain(overflow) {
            sum.limits
                .entry(name::sanitized(key))
                .or_default()
                .merge(limit);
        }
        let overflow = Some((OVERFLOW, &dynamic.overflow_domains)).filter(|(_, count)| **count > 0);
        for (domain, count) in dynamic.unknown_domains.iter().chain(overflow) {
            *sum.unknown_domains
                .entry(name::sanitized(domain))
                .or_default() += count;
        }
    }

    /// Totals of the dynamic series, including the counts that the cores have collected since.
    /// `dynamic_limit` is the limit of series.
    fn collect_dynamic(&self, dynamic_limit: usize) -> MutexGuard<'_, DynamicTotals> {
        let mut dynamic = lock(&self.dynamic_totals);
        let now = Instant::now();
        for shard in &self.shards {
            let names = mem::take(&mut *lock(&shard.dynamic));
            dynamic.add(names, dynamic_limit, now);
        }
        dynamic
    }
}
