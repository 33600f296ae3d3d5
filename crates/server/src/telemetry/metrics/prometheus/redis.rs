//! Metrics of the Redis clients, by pool: `main`, `per_second` if limits per second have their own
//! Redis, and `workflows`.

use tidegate_pipeline::Stats;

use super::Page;
use crate::telemetry::metrics::dotted::SampleKind::{Counter, Gauge};
use crate::telemetry::metrics::dotted::{DOTTED_POOL_METRICS, PoolMetric, PoolValue};

/// Metrics whose only label is the pool.
const POOL_METRICS: [PoolMetric; 8] = [
    ("connections_opened_total", Counter, |stats| stats.opened),
    ("connections_closed_total", Counter, |stats| stats.closed),
    ("retries_total", Counter, |stats| stats.retries),
    ("overloads_total", Counter, |stats| stats.overloads),
    ("lost_replies_total", Counter, |stats| stats.lost),
    ("topology_refreshes_total", Counter, |stats| stats.refreshes),
    ("connections", Gauge, |stats| stats.connections),
    ("retrying_commands", Gauge, |stats| stats.retrying),
];

/// Outcomes of commands, as their callers received them.
const OUTCOMES: [(&str, PoolValue); 5] = [
    ("reply", |stats| stats.ended_with_reply),
    ("server_error", |stats| stats.ended_with_server_error),
    ("not_sent", |stats| stats.ended_not_sent),
    ("rejected", |stats| stats.ended_rejected),
    ("unknown", |stats| stats.ended_unknown),
];

const REDIRECTS: [(&str, PoolValue); 2] =
    [("moved", |stats| stats.moved), ("ask", |stats| stats.ask)];

impl Page {
    pub(super) fn redis(&mut self, pools: &[(&'static str, Stats)]) {
        if pools.is_empty() {
            return;
        }
        for (name, kind, value) in DOTTED_POOL_METRICS.iter().chain(&POOL_METRICS) {
            let name = format!("tidegate_redis_{name}");
            self.family(&name, kind.word());
            for (pool, stats) in pools {
                self.sample(&name, &[("pool", pool)], value(stats));
            }
        }
        self.by_kind("tidegate_redis_outcomes_total", "outcome", &OUTCOMES, pools);
        self.by_kind("tidegate_redis_redirects_total", "kind", &REDIRECTS, pools);
        let name = "tidegate_redis_oldest_owed_reply_seconds";
        self.family(name, "gauge");
        for (pool, stats) in pools {
            self.sample(name, &[("pool", pool)], stats.oldest_pending.as_secs_f64());
        }
    }

    fn by_kind(
        &mut self,
        name: &str,
        label: &str,
        kinds: &[(&str, PoolValue)],
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
