//! The sum of all shards at one moment.

use std::collections::BTreeMap;
use std::mem;
use std::time::Instant;

use tidegate_pipeline::{Client, Stats};
use tidegate_ratelimit::LocalCacheStats;

use tidegate_api::QueueSample;

use super::{LimitCounts, METHODS, MethodCounts, Metrics, OVERFLOW, Shard, lock, name, read};

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
        let global_shadow_mode = self.shards.iter().map(|shard| read(&shard.global_shadow_mode)).sum();
        self.shards.iter().for_each(|shard| sum.add(shard));
        self.add_limits(&mut sum);
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

    /// Adds the counts of all limits and unknown domains.
    fn add_limits(&self, sum: &mut Snapshot) {
        let registry = lock(&self.registry);
        for (key, slot) in registry.current() {
            let limit = sum.limits.entry(name::sanitized(&key)).or_default();
            self.shards.iter().for_each(|shard| limit.merge(&shard.limits.read(slot)));
        }
        let room = self.settings.max_names.saturating_sub(registry.len());
        drop(registry);

        let (mut made, now) = (lock(&self.made), Instant::now());
        for shard in &self.shards {
            let names = mem::take(&mut *lock(&shard.made));
            made.add(names, room, now);
        }
        let overflow = made.more_limits.iter().map(|counts| (OVERFLOW, counts));
        for (key, limit) in made.limits.iter().chain(overflow) {
            sum.limits.entry(name::sanitized(key)).or_default().merge(limit);
        }
        let overflow = Some((OVERFLOW, &made.more_domains)).filter(|(_, count)| **count > 0);
        for (domain, count) in made.unknown_domains.iter().chain(overflow) {
            *sum.unknown_domains.entry(name::sanitized(domain)).or_default() += count;
        }
    }

    fn ask_sources(&self, sum: &mut Snapshot) {
        let sources = lock(&self.sources);
        if let Some(cache) = sources.limiter.as_ref().and_then(tidegate_ratelimit::Limiter::local_cache_stats) {
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

impl Snapshot {
    /// Adds the counters of one core, but for those of limits.
    fn add(&mut self, shard: &Shard) {
        for (into, from) in self.methods.iter_mut().zip(&shard.methods) {
            into.merge(&from.read());
        }
        self.store_errors += read(&shard.store_errors);
        self.service_errors += read(&shard.service_errors);
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
