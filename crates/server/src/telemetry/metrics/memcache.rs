//! Metrics of memcached: under the names of the reference, whose tag `code` is part of the sent
//! name, and under our own.

use tidegate_memcache::{Client, Stats};

use super::snapshot::Snapshot;

type MemcacheValue = fn(&Stats) -> u64;

const COUNTERS: [(&str, MemcacheValue); 15] = [
    ("ratelimit.memcache.multiget.__code=success", |stats| {
        stats.reads
    }),
    ("ratelimit.memcache.multiget.__code=error", |stats| {
        stats.failed_reads
    }),
    ("ratelimit.memcache.increment.__code=success", |stats| {
        stats.changes
    }),
    ("ratelimit.memcache.increment.__code=miss", |stats| {
        stats.missed_changes
    }),
    ("ratelimit.memcache.increment.__code=error", |stats| {
        stats.failed_changes
    }),
    ("ratelimit.memcache.add.__code=success", |stats| stats.adds),
    ("ratelimit.memcache.add.__code=error", |stats| {
        stats.failed_adds
    }),
    ("ratelimit.memcache.add.__code=not_stored", |stats| {
        stats.unneeded_adds
    }),
    ("ratelimit.memcache.keys_requested", |stats| {
        stats.keys_requested
    }),
    ("ratelimit.memcache.keys_found", |stats| stats.keys_found),
    ("tidegate.memcache.dropped_charges", |stats| {
        stats.dropped_changes
    }),
    ("tidegate.memcache.foreign_values", |stats| {
        stats.foreign_values
    }),
    ("tidegate.memcache.connections_opened", |stats| stats.opened),
    ("tidegate.memcache.connections_closed", |stats| stats.closed),
    ("tidegate.memcache.connect_failures", |stats| {
        stats.connect_failures
    }),
];

impl Snapshot {
    /// Adds the sums over all cores, if there are clients.
    pub(super) fn add_memcache(&mut self, clients: &[Client]) {
        if clients.is_empty() {
            return;
        }
        let stats: Stats = clients.iter().map(Client::stats).sum();
        self.counters
            .extend(COUNTERS.map(|(name, value)| (name, value(&stats))));
        let connections = stats.opened.saturating_sub(stats.closed);
        self.gauges.extend([
            ("tidegate.memcache.waiting_bytes", stats.waiting_bytes),
            ("tidegate.memcache.connections", connections),
        ]);
    }
}
