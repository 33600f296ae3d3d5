//! Metrics of the Redis clients, by pool: `main`, `per_second` if limits per second have their own
//! Redis, and `workflows`.

use tidegate_pipeline::Stats;

use super::Page;

type Value = fn(&Stats) -> u64;

/// Counters whose only label is the pool.
const COUNTERS: [(&str, Value); 10] = [
    ("tidegate_redis_commands", |stats| stats.commands),
    ("tidegate_redis_replies", |stats| stats.replies),
    ("tidegate_redis_writes", |stats| stats.writes),
    ("tidegate_redis_connect_failures", |stats| {
        stats.connect_failures
    }),
    ("tidegate_redis_connections_opened_total", |stats| {
        stats.opened
    }),
    ("tidegate_redis_connections_closed_total", |stats| {
        stats.closed
    }),
    ("tidegate_redis_retries_total", |stats| stats.retries),
    ("tidegate_redis_overloads_total", |stats| stats.overloads),
    ("tidegate_redis_lost_replies_total", |stats| stats.lost),
    ("tidegate_redis_topology_refreshes_total", |stats| {
        stats.refreshes
    }),
];

const GAUGES: [(&str, Value); 3] = [
    ("tidegate_redis_connections", |stats| stats.connections),
    ("tidegate_redis_waiting_commands", |stats| stats.waiting),
    ("tidegate_redis_retrying_commands", |stats| stats.retrying),
];

/// Outcomes of commands, as their callers received them.
const OUTCOMES: [(&str, Value); 5] = [
    ("reply", |stats| stats.told_reply),
    ("server_error", |stats| stats.told_server_error),
    ("not_sent", |stats| stats.told_not_sent),
    ("rejected", |stats| stats.told_rejected),
    ("unknown", |stats| stats.told_unknown),
];

const REDIRECTS: [(&str, Value); 2] = [("moved", |stats| stats.moved), ("ask", |stats| stats.ask)];

impl Page {
    pub(super) fn redis(&mut self, pools: &[(&'static str, Stats)]) {
        if pools.is_empty() {
            return;
        }
        for (kind, families) in [("counter", &COUNTERS[..]), ("gauge", &GAUGES)] {
            for (name, value) in families {
                self.family(name, kind);
                for (pool, stats) in pools {
                    self.sample(name, &[("pool", pool)], value(stats));
                }
            }
        }
        self.by_kind("tidegate_redis_outcomes_total", "outcome", &OUTCOMES, pools);
        self.by_kind("tidegate_redis_redirects_total", "kind", &REDIRECTS, pools);
        let name = "tidegate_redis_oldest_owed_reply_seconds";
        self.family(name, "gauge");
        for (pool, stats) in pools {
            self.sample(name, &[("pool", pool)], stats.oldest_owed.as_secs_f64());
        }
    }

    fn by_kind(
        &mut self,
        name: &str,
        label: &str,
        kinds: &[(&str, Value)],
        pools: &[(&'static str, Stats)],
    ) {
        self.family(name, "counter");
        for (pool, stats) in pools {
            for (kind, value) in kinds {
                self.sample(name, &[("pool", pool), (label, kind)], value(stats));
            }
        }
    }
}
