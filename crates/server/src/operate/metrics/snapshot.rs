//! The sum of all shards at one moment.

use std::collections::BTreeMap;

use tidegate_pipeline::{Client, Stats};
use tidegate_ratelimit::LocalCacheStats;

use tidegate_api::QueueSample;

use super::{Counts, LimitCounts, METHODS, MethodCounts, Metrics, lock, name, read};

/// The sum of all shards, and the values of the sources.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    /// By sanitised key: two names that differ only in replaced letters are one.
    pub(super) limits: BTreeMap<String, LimitCounts>,
    pub(super) unknown_domains: BTreeMap<String, u64>,
    pub(super) methods: [MethodCounts; METHODS.len()],
    /// Counters without labels, by the reference's name, in its dot form.
    pub(super) counters: Vec<(&'static str, u64)>,
    /// Gauges, likewise.
    pub(super) gauges: Vec<(String, u64)>,
    /// The state of each queue when it was last sampled.
    pub(super) queues: Vec<QueueSample>,
    pub(super) store_errors: u64,
    pub(super) service_errors: u64,
}

impl Metrics {
    pub(super) fn snapshot(&self) -> Snapshot {
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
        if let Some(cache) = sources.limiter.as_ref().and_then(tidegate_ratelimit::Limiter::local_cache_stats) {
            sum.gauges
                .extend(cache_gauges(&cache).map(|(name, value)| (format!("ratelimit.localcache.{name}"), value)));
        }
        if let Some(memory) = &sources.memory {
            sum.gauges.push(("tidegate.memory.keys".to_owned(), memory.len() as u64));
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

impl Snapshot {
    /// Adds the counters of one core.
    fn add(&mut self, counts: &Counts) {
        for (key, limit) in &counts.limits {
            self.limits.entry(name::sanitized(key)).or_default().merge(limit);
        }
        for (domain, count) in &counts.unknown_domains {
            *self.unknown_domains.entry(name::sanitized(domain)).or_default() += count;
        }
        for (into, from) in self.methods.iter_mut().zip(&counts.methods) {
            into.merge(from);
        }
        self.store_errors += counts.store_errors;
        self.service_errors += counts.service_errors;
    }

    fn add_redis(&mut self, total: &Stats) {
        self.gauges.push(("ratelimit.redis_pool.cx_active".to_owned(), total.connections));
        self.gauges.push(("tidegate.redis.waiting_commands".to_owned(), total.waiting));
        self.counters.extend([
            ("ratelimit.redis_pool.cx_total", total.opened),
            ("ratelimit.redis_pool.cx_local_close", total.closed),
            ("tidegate.redis.connect_failures", total.connect_failures),
            ("tidegate.redis.commands", total.commands),
            ("tidegate.redis.replies", total.replies),
            ("tidegate.redis.writes", total.writes),
        ]);
    }

    fn add_redis_per_second(&mut self, total: &Stats) {
        self.gauges.push(("ratelimit.redis_per_second_pool.cx_active".to_owned(), total.connections));
        self.counters.extend([
            ("ratelimit.redis_per_second_pool.cx_total", total.opened),
            ("ratelimit.redis_per_second_pool.cx_local_close", total.closed),
        ]);
    }
}

fn total(clients: &[Client]) -> Option<Stats> {
    let mut total = clients.first()?.stats();
    for stats in clients[1..].iter().map(Client::stats) {
        total.connections += stats.connections;
        total.opened += stats.opened;
        total.closed += stats.closed;
        total.connect_failures += stats.connect_failures;
        total.commands += stats.commands;
        total.replies += stats.replies;
        total.writes += stats.writes;
        total.waiting += stats.waiting;
    }
    Some(total)
}

fn cache_gauges(cache: &LocalCacheStats) -> [(&'static str, u64); 8] {
    [
        ("evacuateCount", cache.evacuate_count),
        ("expiredCount", cache.expired_count),
        ("entryCount", cache.entry_count),
        ("averageAccessTime", cache.average_access_time),
        ("hitCount", cache.hit_count),
        ("missCount", cache.miss_count),
        ("lookupCount", cache.lookup_count),
        ("overwriteCount", cache.overwrite_count),
    ]
}

impl LimitCounts {
    fn merge(&mut self, other: &Self) {
        self.total_hits += other.total_hits;
        self.over_limit += other.over_limit;
        self.near_limit += other.near_limit;
        self.within_limit += other.within_limit;
        self.over_limit_with_local_cache += other.over_limit_with_local_cache;
        self.shadow_mode += other.shadow_mode;
        self.total_negative_hits += other.total_negative_hits;
    }
}

impl MethodCounts {
    fn merge(&mut self, other: &Self) {
        self.calls += other.calls;
        self.microseconds = self.microseconds.saturating_add(other.microseconds);
        for (into, from) in self.buckets.iter_mut().zip(&other.buckets) {
            *into += from;
        }
    }
}
