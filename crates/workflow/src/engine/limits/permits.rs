//! Extends and releases the permits of leases.

use std::collections::BTreeMap;
use std::time::Duration;

use super::charge::{RETRY_AFTER, has_places};
use crate::codec::lease::LeaseRef;
use crate::engine::Engine;
use crate::engine::error::EngineError;
use crate::store::permits::Extended;
use crate::time::Timestamp;

/// Maximum attempts to release a permit, one second apart: ten minutes.
const MAX_RELEASE_ATTEMPTS: u32 = 600;

impl Engine {
    /// Extends the permits of leases until the leases end.
    pub(in crate::engine) async fn extend_places(
        &self,
        extensions: &[(LeaseRef, Timestamp)],
        now: Timestamp,
    ) -> Vec<Result<Extended, EngineError>> {
        let mut results = vec![Ok(Extended::Yes); extensions.len()];
        let mut by_lease: BTreeMap<Duration, Vec<(usize, String, LeaseRef)>> = BTreeMap::new();
        for (at, (lease, expires)) in extensions
            .iter()
            .enumerate()
            .filter(|(_, (lease, _))| has_places(lease.token))
        {
            match self.graph(lease.workflow).await {
                Ok(Some((graph, _))) => {
                    let places = graph
                        .sets(lease.workflow, lease.job)
                        .into_iter()
                        .map(|set| (at, set, *lease));
                    by_lease
                        .entry(expires.since(now))
                        .or_default()
                        .extend(places);
                }
                // The partition actor reports the missing workflow.
                Ok(None) => {}
                Err(error) => results[at] = Err(error),
            }
        }
        for (length, places) in by_lease {
            let each: Vec<(&str, LeaseRef)> = places
                .iter()
                .map(|(_, set, lease)| (set.as_str(), *lease))
                .collect();
            for ((at, ..), extended) in places
                .iter()
                .zip(self.store().extend_holds(&each, now, length).await)
            {
                match (extended, &results[*at]) {
                    (Ok(Extended::Yes), _) | (_, Err(_)) => {}
                    (other, Ok(_)) => results[*at] = other.map_err(EngineError::from),
                }
            }
        }
        self.hold_again_after_gap(extensions, &mut results, now)
            .await;
        results
    }

    /// Acquires permits again that expired because they could not be extended during an outage, if
    /// they are free.
    async fn hold_again_after_gap(
        &self,
        extensions: &[(LeaseRef, Timestamp)],
        results: &mut [Result<Extended, EngineError>],
        now: Timestamp,
    ) {
        let is_gone = |result: &Result<Extended, EngineError>| matches!(result, Ok(Extended::Gone));
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
        let held = self.hold_spared(&gone, now).await;
        for ((lease, _), result) in extensions.iter().zip(results) {
            if held.contains(lease) {
                *result = Ok(Extended::Yes);
            }
        }
    }

    /// Releases permits in the background.
    pub(in crate::engine) fn release_later(&self, places: Vec<(String, LeaseRef)>) {
        if !places.is_empty() {
            let engine = self.clone();
            self.spawn(async move { engine.release(&places).await });
        }
    }

    /// Releases permits, with retries while the store fails. A permit that is not released stays
    /// taken until its lease would have ended.
    async fn release(&self, places: &[(String, LeaseRef)]) {
        let mut each: Vec<(&str, LeaseRef)> = places
            .iter()
            .map(|(set, lease)| (set.as_str(), *lease))
            .collect();
        for tries in 1..=MAX_RELEASE_ATTEMPTS {
            let released = self
                .store()
                .release(&each, self.server(), self.queues().now())
                .await;
            let mut failed = Vec::new();
            for ((set, lease), released) in each.into_iter().zip(released) {
                match released {
                    Ok(_) => self.queues().unblock(set),
                    Err(_) => failed.push((set, lease)),
                }
            }
            if failed.is_empty() || tries == MAX_RELEASE_ATTEMPTS || self.core.tasks.is_closed() {
                return;
            }
            each = failed;
            tokio::time::sleep(RETRY_AFTER).await;
        }
    }
}
