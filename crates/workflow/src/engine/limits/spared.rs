//! Permits of leases that continue after their end, because an outage kept workers from extending
//! them.

use std::collections::BTreeMap;
use std::time::Duration;

use hashbrown::HashSet;

use super::charge::has_places;
use crate::codec::lease::LeaseRef;
use crate::engine::Engine;
use crate::graph::limits::Limit;
use crate::id::Partition;
use crate::store::permits::PermitRequest;
use crate::time::Timestamp;

impl Engine {
    /// Whether leases of this length may have ended in a gap of a partition, in which workers could
    /// not extend them.
    pub(super) fn had_gap(&self, partition: Partition, length: Duration, now: Timestamp) -> bool {
        let context = &self.core.context;
        context.note_gaps(now);
        context.troubles.is_failing(partition) || context.served.since(partition) + length > now
    }

    /// Acquires the permits of these leases again until they end, if no other lease has acquired
    /// them. Returns the leases that have all of their permits. A worker without its permit
    /// receives that its lease is lost.
    pub(in crate::engine) async fn hold_spared(
        &self,
        spared: &[(LeaseRef, Timestamp)],
        now: Timestamp,
    ) -> HashSet<LeaseRef> {
        let mut sets: BTreeMap<(String, u32), Vec<LeaseRef>> = BTreeMap::new();
        let mut complete: HashSet<LeaseRef> = HashSet::new();
        for (lease, _) in spared.iter().filter(|(lease, _)| has_places(lease.token)) {
            let Ok(Some((graph, _))) = self.graph(lease.workflow).await else {
                continue;
            };
            let Some(limits) = graph.limits(lease.job) else {
                continue;
            };
            complete.insert(*lease);
            for limit in limits.within(lease.workflow).each() {
                if let Limit::Concurrency { most, name } = limit {
                    sets.entry((name.clone(), *most)).or_default().push(*lease);
                }
            }
        }
        let longest = spared
            .iter()
            .map(|(_, until)| until.since(now))
            .max()
            .unwrap_or(Duration::ZERO);
        let holds = sets.iter().map(|((set, most), leases)| PermitRequest {
            set,
            most: *most,
            leases,
        });
        let holds: Vec<PermitRequest<'_>> = holds.collect();
        for (hold, held) in holds
            .iter()
            .zip(self.store().hold(&holds, self.server(), now, longest).await)
        {
            let granted = match held {
                Ok(held) => held.granted,
                Err(error) => {
                    tracing::warn!(set = hold.set, %error, "places under a limit of jobs could not be taken again after an outage");
                    0
                }
            };
            hold.leases[granted..]
                .iter()
                .for_each(|lease| _ = complete.remove(lease));
        }
        complete
    }
}
