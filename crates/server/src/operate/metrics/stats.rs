//! The page `/stats`: every counter under the reference's name.

use tidegate_pipeline::Stats;

use super::limit_counts::LimitCounts;
use super::method_counts::METHODS;
use super::snapshot::Snapshot;

pub(super) fn encode(snapshot: &Snapshot) -> String {
    let mut lines = Vec::new();
    let mut line = |name: String, value: u64| lines.push(format!("{name}: {value}\n"));
    for (key, limit) in &snapshot.limits {
        for (suffix, value) in values(limit) {
            line(format!("ratelimit.service.rate_limit.{key}.{suffix}"), value);
        }
    }
    for (domain, count) in &snapshot.unknown_domains {
        line(format!("ratelimit.service.rate_limit.{domain}.domain_not_found"), *count);
    }
    for ((_, method), counts) in METHODS.iter().zip(&snapshot.methods) {
        line(format!("ratelimit_server.{method}.total_requests"), counts.calls);
    }
    line("ratelimit.service.call.should_rate_limit.redis_error".to_owned(), snapshot.store_errors);
    line("ratelimit.service.call.should_rate_limit.service_error".to_owned(), snapshot.service_errors);
    for (pool, stats) in &snapshot.redis {
        let of = if *pool == "main" { "tidegate.redis".to_owned() } else { format!("tidegate.redis.{pool}") };
        for (name, value) in REDIS {
            line(format!("{of}.{name}"), value(stats));
        }
    }
    snapshot.counters.iter().for_each(|(name, value)| line((*name).to_owned(), *value));
    snapshot.gauges.iter().for_each(|(name, value)| line(name.clone(), *value));
    lines.sort();
    lines.concat()
}

type Value = fn(&Stats) -> u64;

/// What is told of the clients of a Redis.
const REDIS: [(&str, Value); 5] = [
    ("waiting_commands", |stats| stats.waiting),
    ("connect_failures", |stats| stats.connect_failures),
    ("commands", |stats| stats.commands),
    ("replies", |stats| stats.replies),
    ("writes", |stats| stats.writes),
];

fn values(limit: &LimitCounts) -> [(&'static str, u64); 7] {
    [
        ("total_hits", limit.total_hits),
        ("over_limit", limit.over_limit),
        ("near_limit", limit.near_limit),
        ("within_limit", limit.within_limit),
        ("over_limit_with_local_cache", limit.over_limit_with_local_cache),
        ("shadow_mode", limit.shadow_mode),
        ("total_negative_hits", limit.total_negative_hits),
    ]
}
