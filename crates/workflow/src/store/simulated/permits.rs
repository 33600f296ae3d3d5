//! Permits of the simulated store.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use hashbrown::HashMap;

use super::SimulatedStore;
use super::servers::Servers;
use crate::codec::StoreError;
use crate::model::{LeaseRef, Partition, Timestamp};
use crate::store::change_notice::release::Release;
use crate::store::{
    PermitCount, PermitExtension, PermitHolders, PermitRequest, ServerId, Topic, permit_duration,
};

/// The permits of all limits.
#[derive(Debug, Default)]
pub(super) struct SimulatedPermits {
    holders: BTreeMap<String, HashMap<LeaseRef, Timestamp>>,
    /// Servers that did not get all permits that they requested.
    waiting: BTreeMap<String, BTreeSet<ServerId>>,
}

impl SimulatedPermits {
    /// Removes expired permits.
    fn advance(&mut self, now: Timestamp) -> &mut Self {
        self.holders.retain(|_, holders| {
            holders.retain(|_, until| *until > now);
            !holders.is_empty()
        });
        self
    }

    fn acquire(
        &mut self,
        request: &PermitRequest<'_>,
        by: ServerId,
        now: Timestamp,
        until: Timestamp,
    ) -> PermitCount {
        let holders = self.holders.entry(request.limit.to_owned()).or_default();
        let mut granted = 0;
        for lease in request.leases {
            if holders.len() >= request.permits as usize && !holders.contains_key(lease) {
                break;
            }
            extend_permit(holders, *lease, until);
            granted += 1;
        }
        let next_expiry = holders.values().min().map(|until| until.since(now));
        let count = PermitCount {
            granted,
            in_use: count_holders(holders),
            next_expiry,
        };
        // The server that took the last permit knows that none is left, and waits, too.
        if granted < request.leases.len() || holders.len() >= request.permits as usize {
            self.waiting
                .entry(request.limit.to_owned())
                .or_default()
                .insert(by);
        }
        count
    }

    fn extend(&mut self, name: &str, lease: LeaseRef, until: Timestamp) -> PermitExtension {
        let found = self
            .holders
            .get_mut(name)
            .filter(|holders| holders.contains_key(&lease));
        let Some(holders) = found else {
            return PermitExtension::Expired;
        };
        extend_permit(holders, lease, until);
        PermitExtension::Extended
    }

    /// Releases a permit. Returns whether the lease had one.
    fn release(&mut self, name: &str, lease: LeaseRef) -> bool {
        self.holders
            .get_mut(name)
            .is_some_and(|holders| holders.remove(&lease).is_some())
    }

    fn holder_count(&self, name: &str) -> u32 {
        self.holders.get(name).map_or(0, count_holders)
    }

    fn list(&self, name: &str, now: Timestamp, limit: usize) -> PermitHolders {
        let holders = self
            .holders
            .get(name)
            .into_iter()
            .flatten()
            .filter(|(_, until)| **until > now);
        let mut first: Vec<(LeaseRef, Timestamp)> =
            holders.map(|(lease, until)| (*lease, *until)).collect();
        let number = u32::try_from(first.len()).unwrap_or(u32::MAX);
        first.sort_by_key(|(_, until)| *until);
        first.truncate(limit);
        PermitHolders { number, first }
    }
}

fn count_holders(holders: &HashMap<LeaseRef, Timestamp>) -> u32 {
    u32::try_from(holders.len()).unwrap_or(u32::MAX)
}

fn extend_permit(holders: &mut HashMap<LeaseRef, Timestamp>, lease: LeaseRef, until: Timestamp) {
    let expiry = holders.entry(lease).or_insert(until);
    *expiry = until.max(*expiry);
}

/// Notifies the servers that wait for a permit of a limit, if a server other than `by` waits.
fn notify_waiting(
    permits: &mut SimulatedPermits,
    servers: &mut Servers,
    (partition, limit): (Partition, &str),
    by: ServerId,
) {
    let waiting = permits.waiting.remove(limit).unwrap_or_default();
    if waiting.iter().any(|server| *server != by) {
        servers.publish(Topic::Partition(partition), &Release::write(by, limit));
    }
}

impl SimulatedStore {
    pub(crate) async fn acquire_permits(
        &self,
        requests: &[PermitRequest<'_>],
        by: ServerId,
        now: Timestamp,
        lease: Duration,
    ) -> Result<Vec<PermitCount>, StoreError> {
        let until = now + permit_duration(lease);
        self.write(|tables| {
            let permits = tables.permits.advance(now);
            requests
                .iter()
                .map(|request| permits.acquire(request, by, now, until))
                .collect()
        })
        .await
    }

    pub(crate) async fn extend_permits(
        &self,
        requested: &[(&str, LeaseRef)],
        now: Timestamp,
        lease: Duration,
    ) -> Result<Vec<PermitExtension>, StoreError> {
        let until = now + permit_duration(lease);
        self.write(|tables| {
            let permits = tables.permits.advance(now);
            requested
                .iter()
                .map(|(limit, lease)| permits.extend(limit, *lease, until))
                .collect()
        })
        .await
    }

    pub(crate) async fn release_permits(
        &self,
        requested: &[(&str, LeaseRef)],
        by: ServerId,
        now: Timestamp,
    ) -> Result<Vec<u32>, StoreError> {
        let partitions = self.partitions();
        self.write(|tables| {
            let permits = tables.permits.advance(now);
            let servers = &mut tables.servers;
            for (limit, lease) in requested {
                if permits.release(limit, *lease) {
                    notify_waiting(
                        permits,
                        servers,
                        (Partition::for_name(limit, partitions), limit),
                        by,
                    );
                }
            }
            requested
                .iter()
                .map(|(limit, _)| permits.holder_count(limit))
                .collect()
        })
        .await
    }

    pub(crate) async fn permit_holders(
        &self,
        limits: &[&str],
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<PermitHolders>, StoreError> {
        let tables = self.read().await?;
        Ok(limits
            .iter()
            .map(|name| tables.permits.list(name, now, limit))
            .collect())
    }
}
