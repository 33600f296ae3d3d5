//! Permits of the simulated store.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use hashbrown::HashMap;

use super::SimulatedStore;
use super::servers::Servers;
use crate::codec::lease::LeaseRef;
use crate::id::Partition;
use crate::store::change_notice::{Audience, ServerId};
use crate::store::error::StoreError;
use crate::store::permits::{Extended, PermitCount, PermitHolders, PermitRequest, term};
use crate::store::release::Release;
use crate::store::subscription::Topic;
use crate::time::Timestamp;

/// The permits of all limits.
#[derive(Debug, Default)]
pub(super) struct Sets {
    held: BTreeMap<String, HashMap<LeaseRef, Timestamp>>,
    /// Servers that did not get all permits that they requested.
    waiting: BTreeMap<String, BTreeSet<ServerId>>,
}

impl Sets {
    /// Removes expired permits.
    fn advance(&mut self, now: Timestamp) -> &mut Self {
        self.held.retain(|_, holders| {
            holders.retain(|_, until| *until > now);
            !holders.is_empty()
        });
        self
    }

    fn hold(
        &mut self,
        hold: &PermitRequest<'_>,
        by: ServerId,
        now: Timestamp,
        until: Timestamp,
    ) -> PermitCount {
        let holders = self.held.entry(hold.set.to_owned()).or_default();
        let mut granted = 0;
        for lease in hold.leases {
            if holders.len() >= hold.most as usize && !holders.contains_key(lease) {
                break;
            }
            prolong(holders, *lease, until);
            granted += 1;
        }
        let next = holders.values().min().map(|until| until.since(now));
        let standing = PermitCount {
            granted,
            number: number(holders),
            next,
        };
        // The server that took the last permit knows that none is left, and waits, too.
        if granted < hold.leases.len() || holders.len() >= hold.most as usize {
            self.waiting
                .entry(hold.set.to_owned())
                .or_default()
                .insert(by);
        }
        standing
    }

    fn extend(&mut self, set: &str, lease: LeaseRef, until: Timestamp) -> Extended {
        let held = self
            .held
            .get_mut(set)
            .filter(|holders| holders.contains_key(&lease));
        let Some(holders) = held else {
            return Extended::Gone;
        };
        prolong(holders, lease, until);
        Extended::Yes
    }

    /// Releases a permit. Returns whether the lease had one.
    fn release(&mut self, set: &str, lease: LeaseRef) -> bool {
        self.held
            .get_mut(set)
            .is_some_and(|holders| holders.remove(&lease).is_some())
    }

    fn number(&self, set: &str) -> u32 {
        self.held.get(set).map_or(0, number)
    }

    fn list(&self, set: &str, now: Timestamp, limit: usize) -> PermitHolders {
        let holders = self
            .held
            .get(set)
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

fn number(holders: &HashMap<LeaseRef, Timestamp>) -> u32 {
    u32::try_from(holders.len()).unwrap_or(u32::MAX)
}

fn prolong(holders: &mut HashMap<LeaseRef, Timestamp>, lease: LeaseRef, until: Timestamp) {
    let held = holders.entry(lease).or_insert(until);
    *held = until.max(*held);
}

/// Notifies the servers that wait for a permit of a limit, if a server other than `by` waits.
fn tell(sets: &mut Sets, servers: &mut Servers, (partition, set): (Partition, &str), by: ServerId) {
    let waiting = sets.waiting.remove(set).unwrap_or_default();
    if waiting.iter().any(|server| *server != by) {
        servers.tell(
            Topic::Partition(partition, Audience::Waiting),
            &Release::write(by, set),
        );
    }
}

impl SimulatedStore {
    pub(crate) async fn hold(
        &self,
        holds: &[PermitRequest<'_>],
        by: ServerId,
        now: Timestamp,
        lease: Duration,
    ) -> Result<Vec<PermitCount>, StoreError> {
        let until = now + term(lease);
        self.write(|tables| {
            let sets = tables.holders.advance(now);
            holds
                .iter()
                .map(|hold| sets.hold(hold, by, now, until))
                .collect()
        })
        .await
    }

    pub(crate) async fn extend_holds(
        &self,
        places: &[(&str, LeaseRef)],
        now: Timestamp,
        lease: Duration,
    ) -> Result<Vec<Extended>, StoreError> {
        let until = now + term(lease);
        self.write(|tables| {
            let sets = tables.holders.advance(now);
            places
                .iter()
                .map(|(set, lease)| sets.extend(set, *lease, until))
                .collect()
        })
        .await
    }

    pub(crate) async fn release(
        &self,
        places: &[(&str, LeaseRef)],
        by: ServerId,
        now: Timestamp,
    ) -> Result<Vec<u32>, StoreError> {
        let partitions = self.partitions();
        self.write(|tables| {
            let sets = tables.holders.advance(now);
            let servers = &mut tables.servers;
            for (set, lease) in places {
                if sets.release(set, *lease) {
                    tell(
                        sets,
                        servers,
                        (Partition::of_text(set, partitions), set),
                        by,
                    );
                }
            }
            places.iter().map(|(set, _)| sets.number(set)).collect()
        })
        .await
    }

    pub(crate) async fn holders(
        &self,
        sets: &[&str],
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<PermitHolders>, StoreError> {
        let tables = self.read().await?;
        Ok(sets
            .iter()
            .map(|set| tables.holders.list(set, now, limit))
            .collect())
    }
}
