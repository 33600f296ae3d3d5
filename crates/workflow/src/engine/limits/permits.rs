//! Extends and releases the permits of leases, and acquires them again for leases that continue
//! after their end, because an outage kept workers from extending them.

use std::collections::BTreeMap;
use std::time::Duration;

use hashbrown::HashSet;

use super::charge::{RETRY_AFTER, has_permits};
use crate::engine::Engine;
use crate::engine::context::error::EngineError;
use crate::model::{LeaseRef, Partition, Timestamp};
use crate::store::{PermitExtension, PermitRequest};

/// Maximum attempts to release a permit, one second apart: ten minutes.
const MAX_RELEASE_ATTEMPTS: u32 = 600;

impl Engine {
    /// Extends the permits of leases until the leases end.
    pub(in crate::engine) async fn extend_permits(
        &self,
        extensions: &[(LeaseRef, Timestamp)],
        now: Timestamp,
    ) -> Vec<Result<PermitExtension, EngineError>> {
        let mut results = vec![Ok(PermitExtension::Extended); extensions.len()];
        let mut by_lease: BTreeMap<Duration, Vec<_>> = BTreeMap::new();
        for (at, (lease, expires)) in extensions.iter().enumerate() {
            if !has_permits(lease.token) {
                continue;
            }
            match self.graph(lease.workflow).await {
                Ok(Some((graph, _))) => {
                    let permits = graph
                        .permit_sets(lease.workflow, lease.job)
                        .into_iter()
                        .map(|set| (at, set, *lease));
                    by_lease
                        .entry(expires.since(now))
                        .or_default()
                        .extend(permits);
                }
                // The partition actor reports the missing workflow.
                Ok(None) => {}
                Err(error) => results[at] = Err(error),
            }
        }
        for (length, permits) in by_lease {
            self.extend_sets(&permits, length, &mut results, now).await;
        }
        self.reacquire_after_gap(extensions, &mut results, now)
            .await;
        results
    }

    /// Extends permits of concurrency limits. Each has the index of its lease's result, which is
    /// replaced unless all permits of the lease are extended.
    async fn extend_sets(
        &self,
        permits: &[(usize, String, LeaseRef)],
        length: Duration,
        results: &mut [Result<PermitExtension, EngineError>],
        now: Timestamp,
    ) {
        let permit_refs: Vec<(&str, LeaseRef)> = permits
            .iter()
            .map(|(_, set, lease)| (set.as_str(), *lease))
            .collect();
        for ((at, ..), extended) in permits
            .iter()
            .zip(self.store().extend_permits(&permit_refs, now, length).await)
        {
            if extended != Ok(PermitExtension::Extended) && results[*at].is_ok() {
                results[*at] = extended.map_err(EngineError::from);
            }
        }
    }

    /// Acquires permits again that expired because they could not be extended during an outage, if
    /// they are free.
    async fn reacquire_after_gap(
        &self,
        extensions: &[(LeaseRef, Timestamp)],
        results: &mut [Result<PermitExtension, EngineError>],
        now: Timestamp,
    ) {
        let is_gone = |result: &Result<PermitExtension, EngineError>| {
            matches!(result, Ok(PermitExtension::Expired))
        };
        let gone = extensions
            .iter()
            .zip(&*results)
            .filter(|(_, result)| is_gone(result));
        let gone = gone.filter(|((lease, until), _)| {
            self.had_gap(lease.workflow.partition(), until.since(now), now)
        });
        let gone: Vec<(LeaseRef, Timestamp)> = gone.map(|(extension, _)| *extension).collect();
        if gone.is_empty() {
            return;
        }
        let held = self.reacquire_permits(&gone, now).await;
        for ((lease, _), result) in extensions.iter().zip(results) {
            if held.contains(lease) {
                *result = Ok(PermitExtension::Extended);
            }
        }
    }

    /// Releases permits in the background.
    pub(in crate::engine) fn release_later(&self, permits: Vec<(String, LeaseRef)>) {
        if !permits.is_empty() {
            let engine = self.clone();
            self.spawn(async move { engine.release(&permits).await });
        }
    }

    /// Releases permits in the background that the store may have granted although it failed. It
    /// pauses first, because a release lets waiting claims acquire again.
    pub(super) fn release_after_failure(&self, permits: Vec<(String, LeaseRef)>) {
        if !permits.is_empty() {
            let engine = self.clone();
            self.spawn(async move {
                tokio::time::sleep(RETRY_AFTER).await;
                engine.release(&permits).await;
            });
        }
    }

    /// Releases permits, with retries while the store fails. A permit that is not released stays
    /// taken until its lease would have ended.
    async fn release(&self, permits: &[(String, LeaseRef)]) {
        let mut permit_refs: Vec<(&str, LeaseRef)> = permits
            .iter()
            .map(|(set, lease)| (set.as_str(), *lease))
            .collect();
        for attempt in 1..=MAX_RELEASE_ATTEMPTS {
            let released = self
                .store()
                .release_permits(&permit_refs, self.server_id(), self.queues().now())
                .await;
            let mut failed = Vec::new();
            for ((set, lease), released) in permit_refs.into_iter().zip(released) {
                match released {
                    Ok(_) => self.queues().unblock(set),
                    Err(_) => failed.push((set, lease)),
                }
            }
            if failed.is_empty() || attempt == MAX_RELEASE_ATTEMPTS || self.core.tasks.is_closed() {
                return;
            }
            permit_refs = failed;
            tokio::time::sleep(RETRY_AFTER).await;
        }
    }
}

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
        let mut sets: BTreeMap<_, Vec<LeaseRef>> = BTreeMap::new();
        let mut complete = HashSet::new();
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
            for (set, most) in limits.for_workflow(lease.workflow).concurrency_limits() {
                sets.entry((set.clone(), most)).or_default().push(*lease);
            }
        }
        let max_length = expired_leases
            .iter()
            .map(|(_, until)| until.since(now))
            .max()
            .unwrap_or_default();
        for denied in self.denied_permits(&sets, max_length, now).await {
            complete.remove(&denied);
        }
        complete
    }

    /// Acquires permits of concurrency limits for `length`. Returns the leases that a limit denies.
    async fn denied_permits(
        &self,
        sets: &BTreeMap<(String, u32), Vec<LeaseRef>>,
        length: Duration,
        now: Timestamp,
    ) -> Vec<LeaseRef> {
        let requests = sets.iter().map(|((set, most), leases)| PermitRequest {
            limit: set,
            permits: *most,
            leases,
        });
        let requests: Vec<PermitRequest<'_>> = requests.collect();
        let grants = self
            .store()
            .acquire_permits(&requests, self.server_id(), now, length)
            .await;
        let mut denied = Vec::new();
        for (request, grant) in requests.iter().zip(grants) {
            let granted = grant.map_or_else(
                |error| {
                    tracing::warn!(set = request.limit, %error, "places under a limit of jobs could not be taken again after an outage");
                    0
                },
                |grant| grant.granted,
            );
            denied.extend_from_slice(&request.leases[granted..]);
        }
        denied
    }
}
