//! The page `/stats`: every counter under the reference's name.

use super::METHODS;
use super::snapshot::Snapshot;

pub(super) fn encode(snapshot: &Snapshot) -> String {
    let mut lines = Vec::new();
    let mut line = |name: String, value: u64| lines.push(format!("{name}: {value}\n"));
    for (key, limit) in &snapshot.limits {
        let mut limit_line = |suffix: &str, value| line(format!("ratelimit.service.rate_limit.{key}.{suffix}"), value);
        limit_line("total_hits", limit.total_hits);
        limit_line("over_limit", limit.over_limit);
        limit_line("near_limit", limit.near_limit);
        limit_line("within_limit", limit.within_limit);
        limit_line("over_limit_with_local_cache", limit.over_limit_with_local_cache);
        limit_line("shadow_mode", limit.shadow_mode);
        limit_line("total_negative_hits", limit.total_negative_hits);
    }
    for (domain, count) in &snapshot.unknown_domains {
        line(format!("ratelimit.service.rate_limit.{domain}.domain_not_found"), *count);
    }
    for ((_, method), counts) in METHODS.iter().zip(&snapshot.methods) {
        line(format!("ratelimit_server.{method}.total_requests"), counts.calls);
    }
    line("ratelimit.service.call.should_rate_limit.redis_error".to_owned(), snapshot.store_errors);
    line("ratelimit.service.call.should_rate_limit.service_error".to_owned(), snapshot.service_errors);
    for (name, value) in &snapshot.counters {
        line((*name).to_owned(), *value);
    }
    for (name, value) in &snapshot.gauges {
        line(name.clone(), *value);
    }
    lines.sort();
    lines.concat()
}
