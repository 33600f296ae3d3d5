//! What the engine did with Redis, by pool: `main`, and `per_second` when limits per second have a Redis of their own.

use tidegate_pipeline::Stats;

use super::Page;

type Value = fn(&Stats) -> u64;

/// Counters without a label of their own.
const COUNTERS: [(&str, Value); 4] = [
    ("tidegate_redis_retries_total", |stats| stats.retries),
    ("tidegate_redis_overloads_total", |stats| stats.overloads),
    ("tidegate_redis_lost_replies_total", |stats| stats.lost),
    ("tidegate_redis_topology_refreshes_total", |stats| stats.refreshes),
];

/// What callers were told of their commands.
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
        for (name, value) in COUNTERS {
            self.family(name, "counter");
            for (pool, stats) in pools {
                self.sample(name, &[("pool", pool)], value(stats));
            }
        }
        self.by_kind("tidegate_redis_outcomes_total", "outcome", &OUTCOMES, pools);
        self.by_kind("tidegate_redis_redirects_total", "kind", &REDIRECTS, pools);
        let name = "tidegate_redis_retrying_commands";
        self.family(name, "gauge");
        for (pool, stats) in pools {
            self.sample(name, &[("pool", pool)], stats.retrying);
        }
        let name = "tidegate_redis_oldest_owed_reply_seconds";
        self.family(name, "gauge");
        for (pool, stats) in pools {
            self.sample(name, &[("pool", pool)], stats.oldest_owed.as_secs_f64());
        }
    }

    fn by_kind(&mut self, name: &str, label: &str, kinds: &[(&str, Value)], pools: &[(&'static str, Stats)]) {
        self.family(name, "counter");
        for (pool, stats) in pools {
            for (kind, value) in kinds {
                self.sample(name, &[("pool", pool), (label, kind)], value(stats));
            }
        }
    }
}
