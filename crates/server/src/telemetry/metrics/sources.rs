//! Sources of metrics that are read for each snapshot.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tidegate_api::ApiMetrics;
use tidegate_pipeline::Client;
use tidegate_ratelimit::{Limiter, MemoryStore};

use super::shard::shared::read;
use super::snapshot::{Snapshot, cache_gauges, sum_stats};
use crate::net::bounds::PortBounds;
use crate::telemetry::traces::Traces;

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
