//! Permits of leases that continue after their end, because an outage kept workers from extending
//! them.

use std::collections::BTreeMap;
use std::time::Duration;

use hashbrown::HashSet;

use super::charge::has_permits;
use crate::engine::Engine;
use crate::graph::limits::Limit;
use crate::model::id::Partition;
use crate::model::lease_ref::LeaseRef;
use crate::model::time::Timestamp;
use crate::store::permits::PermitRequest;

impl Engine {
    /// Whether leases of this length may have ended in a gap of a partition, in which workers could
    /// not extend them.
    pub(super) fn had_gap(&self, partition: Partition, length: Duration, now: Timestamp) -> bool {
        let context = &self.core.context;
        context.record_recoveries(now);
        context.store_health.is_failing(partition)
            || context.served_since.since(partition) + length > now
    }

    /// Acquires the permits of these leases again until they end, if no other lease has acquired
    /// them. Returns the leases that have all of their permits. A worker without its permit
    /// receives that its lease is lost.
    pub(in crate::engine) async fn reacquire_permits(
        &self,
        expired_leases: &[(LeaseRef, Timestamp)],
        now: Timestamp,
    ) -> HashSet<LeaseRef> {
        let mut sets: BTreeMap<(String, u32), Vec<LeaseRef>> = BTreeMap::new();
        let mut complete: HashSet<LeaseRef> = HashSet::new();
        for (lease, _) in expired_leases
            .iter()
            .filter(|(lease, _)| has_permits(lease.token))
        {
            let Ok(Some((graph, _))) = self.graph(lease.workflow).await else {
                continue;
            };
            let Some(limits) = graph.limits(lease.job) else {
                continue;
            };
            complete.insert(*lease);
            for limit in limits.for_workflow(lease.workflow).as_slice() {
                if let Limit::Concurrency { most, name } = limit {
                    sets.entry((name.clone(), *most)).or_default().push(*lease);
                }
            }
        }
        let max_length = expired_leases
            .iter()
            .map(|(_, until)| until.since(now))
            .max()
            .unwrap_or(Duration::ZERO);
        let requests = sets.iter().map(|((set, most), leases)| PermitRequest {
            limit: set,
            permits: *most,
            leases,
        });
        let requests: Vec<PermitRequest<'_>> = requests.collect();
        for (request, grant) in requests.iter().zip(
            self.store()
                .acquire_permits(&requests, self.server_id(), now, max_length)
                .await,
        ) {
            let granted = match grant {
                Ok(grant) => grant.granted,
                Err(error) => {
                    tracing::warn!(set = request.limit, %error, "places under a limit of jobs could not be taken again after an outage");
                    0
                }
            };
            request.leases[granted..]
                .iter()
                .for_each(|lease| _ = complete.remove(lease));
        }
        complete
    }
}
