//! Snapshot of the metrics: the sum of all shards.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tidegate_pipeline::{Client, Stats};
use tidegate_ratelimit::{Limiter, LocalCacheStats, MemoryStore};

use tidegate_api::{ApiMetrics, QueueSample, WorkflowCounts};
use tidegate_workflow::HandlerTimes;

use super::limit_counts::LimitCounts;
use super::method_counts::{METHODS, MethodCounts, Times};
use super::shard::Shard;
use super::shard::shared::read;
use crate::net::bounds::{PortBounds, PortSample};
use crate::telemetry::traces::Traces;

/// Names of the reference for connections of a pool that are open, were opened and were closed.
const MAIN_POOL: [&str; 3] = [
    "ratelimit.redis_pool.cx_active",
    "ratelimit.redis_pool.cx_total",
    "ratelimit.redis_pool.cx_local_close",
];
const PER_SECOND_POOL: [&str; 3] = [
    "ratelimit.redis_per_second_pool.cx_active",
    "ratelimit.redis_per_second_pool.cx_total",
    "ratelimit.redis_per_second_pool.cx_local_close",
];

/// The sum of all shards, and the values of the sources.
#[derive(Debug, Clone, Default)]
pub(crate) struct Snapshot {
    /// Counts by sanitised key. Names that are equal after sanitising are summed.
    pub(super) limits: BTreeMap<String, LimitCounts>,
    pub(super) unknown_domains: BTreeMap<String, u64>,
    pub(super) methods: [MethodCounts; METHODS.len()],
    /// Calls of these methods by response time class, if a sink needs them.
    pub(super) times: [Times; METHODS.len()],
    /// Counters without labels, by dotted name.
    pub(super) counters: Vec<(&'static str, u64)>,
    /// Gauges without labels, by dotted name.
    pub(super) gauges: Vec<(&'static str, u64)>,
    /// State of each queue at the latest sample.
    pub(super) queues: Vec<QueueSample>,
    /// Numbers of workflows and jobs at the latest sample.
    pub(super) workflow_counts: WorkflowCounts,
    /// Durations of attempts, by handler.
    pub(super) handlers: Vec<HandlerTimes>,
    /// Statistics of Redis clients, by pool.
    pub(super) redis: Vec<(&'static str, Stats)>,
    pub(super) store_errors: u64,
    pub(super) service_errors: u64,
    pub(super) global_shadow_mode: u64,
    /// Requests that were refused for the number of their descriptors, and of their entries.
    pub(super) excess: [u64; 2],
    pub(super) ports: Vec<PortSample>,
}

impl Snapshot {
    /// Adds the counters of one core, except those of limits.
    pub(super) fn add(&mut self, shard: &Shard) {
        for (into, from) in self.methods.iter_mut().zip(&shard.methods) {
            into.merge(&from.read());
        }
        for (into, from) in self.times.iter_mut().zip(&shard.methods) {
            from.add_times(into);
        }
        self.store_errors += read(&shard.store_errors);
        self.service_errors += read(&shard.service_errors);
        self.global_shadow_mode += read(&shard.global_shadow_mode);
        for (into, from) in self.excess.iter_mut().zip(&shard.excess) {
            *into += read(from);
        }
    }

    pub(super) fn add_workflows(&mut self, activity: &ApiMetrics) {
        self.counters.extend(activity.counters());
        self.gauges.extend([
            ("tidegate.api.event_streams", activity.event_streams()),
            (
                "tidegate.workflows.clock_skew_microseconds",
                activity.clock_skew().map_or(0, i64::unsigned_abs),
            ),
            (
                "tidegate.workflows.store_risks",
                activity.risks().len() as u64,
            ),
        ]);
        self.queues = activity.queues();
        self.workflow_counts = activity.workflow_counts();
        if let Some(tally) = activity.attempt_counts() {
            self.handlers = tally.handlers();
        }
    }

    /// Adds the metrics that the reference has for its pools.
    pub(super) fn add_reference_pools(&mut self) {
        for (pool, stats) in &self.redis {
            let [active, opened, closed] = match *pool {
                "main" => MAIN_POOL,
                "per_second" => PER_SECOND_POOL,
                _ => continue,
            };
            self.gauges.push((active, stats.connections));
            self.counters
                .extend([(opened, stats.opened), (closed, stats.closed)]);
        }
    }
}

/// Sum over the clients of all cores. None without a client.
fn sum_stats(clients: &[Client]) -> Option<Stats> {
    (!clients.is_empty()).then(|| clients.iter().map(Client::stats).sum())
}

fn cache_gauges(cache: &LocalCacheStats) -> [(&'static str, u64); 8] {
    [
        ("ratelimit.localcache.evacuateCount", cache.evacuate_count),
        ("ratelimit.localcache.expiredCount", cache.expired_count),
        ("ratelimit.localcache.entryCount", cache.entry_count),
        (
            "ratelimit.localcache.averageAccessTime",
            cache.average_access_time,
        ),
        ("ratelimit.localcache.hitCount", cache.hit_count),
        ("ratelimit.localcache.missCount", cache.miss_count),
        ("ratelimit.localcache.lookupCount", cache.lookup_count),
        ("ratelimit.localcache.overwriteCount", cache.overwrite_count),
    ]
}

/// Sources of metrics that are read for each snapshot.
#[derive(Debug, Default)]
pub(super) struct Sources {
    pub(super) limiter: Option<Limiter>,
    pub(super) memory: Option<MemoryStore>,
    pub(super) redis: Vec<Client>,
    pub(super) redis_per_second: Vec<Client>,
    pub(super) redis_of_workflows: Vec<Client>,
    pub(super) memcache: Vec<tidegate_memcache::Client>,
    pub(super) workflows: Option<Arc<ApiMetrics>>,
    pub(super) ports: Vec<PortBounds>,
    pub(super) management: Option<Arc<AtomicU64>>,
    pub(super) traces: Option<Traces>,
}

impl Sources {
    pub(super) fn add_to(&self, sum: &mut Snapshot) {
        let cache = self.limiter.as_ref().and_then(Limiter::local_cache_stats);
        sum.gauges.extend(cache.iter().flat_map(cache_gauges));
        if let Some(memory) = &self.memory {
            sum.gauges.extend([
                ("tidegate.memory.keys", memory.len() as u64),
                ("tidegate.memory.bytes", memory.bytes() as u64),
            ]);
            sum.counters
                .push(("tidegate.memory.evictions", memory.evictions()));
        }
        if let Some(connected) = &self.management {
            sum.gauges
                .push(("tidegate.config.server_connected", read(connected)));
        }
        if let Some(workflows) = &self.workflows {
            sum.add_workflows(workflows);
        }
        sum.add_memcache(&self.memcache);
        if let Some(traces) = &self.traces {
            let [exported, dropped] = traces.counts();
            sum.counters.extend([
                ("tidegate.traces.exported_spans", exported),
                ("tidegate.traces.dropped_spans", dropped),
            ]);
        }
        sum.ports = self.ports.iter().map(PortBounds::sample).collect();
        self.add_redis_to(sum);
    }

    fn add_redis_to(&self, sum: &mut Snapshot) {
        for (pool, clients) in [
            ("main", &self.redis),
            ("per_second", &self.redis_per_second),
            ("workflows", &self.redis_of_workflows),
        ] {
            sum.redis
                .extend(sum_stats(clients).map(|total| (pool, total)));
        }
        sum.add_reference_pools();
    }
}
