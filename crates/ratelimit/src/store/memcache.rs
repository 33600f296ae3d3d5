//! Counters in memcached: read before the answer, and charged after it.

use std::time::Instant;

use hashbrown::HashMap;
use smallvec::SmallVec;
use tidegate_memcache::{self as memcache, Client, CounterRead, Expiry, MemcacheKey};

use super::{BulkCharge, Charge, CounterChange, Grant, StoreError, Totals};
use crate::model::Seconds;

/// Maximum number of hits of one addition, and highest value that hits are added to. A limit has 32
/// bits, so a counter with this value is over it. memcached wraps to zero after 2^64.
const MAX_ADDED_HITS: u64 = 1 << 40;

/// Counters in memcached, under the reference's key names.
///
/// As in the reference, a request is decided by the previous values of its counters and its own
/// hits, and the hits are charged in the background. So concurrent requests may all pass, and a
/// counter that cannot be read counts as zero. Units of jobs are acquired in the same way, and are
/// as approximate.
#[derive(Debug, Clone)]
pub struct MemcacheStore {
    client: Client,
}

/// Value of a counter after the charges of a request so far.
#[derive(Debug, Clone, Copy)]
struct CounterState {
    read: CounterRead,
    total: u64,
}

impl MemcacheStore {
    /// Creates a store on this client's servers.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    pub(crate) async fn read(&self, charges: &[Charge<'_>], deadline: Instant) -> Totals {
        self.read_states(&names(charges), deadline)
            .await
            .into_iter()
            .map(|state| state.total)
            .collect()
    }

    pub(crate) async fn add(
        &self,
        charges: &[Charge<'_>],
        now: Seconds,
        deadline: Instant,
    ) -> Totals {
        let grants = self
            .change(charges, now, deadline, |index, _| charges[index].hits)
            .await;
        grants.into_iter().map(|grant| grant.total).collect()
    }

    pub(crate) async fn acquire(
        &self,
        requests: &[BulkCharge<'_>],
        now: Seconds,
        deadline: Instant,
    ) -> Vec<Result<Grant, StoreError>> {
        let charges: Vec<Charge<'_>> = requests.iter().map(|request| request.charge).collect();
        let grants = self
            .change(&charges, now, deadline, |index, count| {
                requests[index].granted(count)
            })
            .await;
        grants.into_iter().map(Ok).collect()
    }

    /// Makes the charges with the hits that `hits_of` returns for the index of a charge and the
    /// value of its counter.
    async fn change(
        &self,
        charges: &[Charge<'_>],
        now: Seconds,
        deadline: Instant,
        hits_of: impl Fn(usize, u64) -> i64,
    ) -> SmallVec<[Grant; 4]> {
        let names = names(charges);
        let found = self.read_states(&names, deadline).await;
        // Of two charges of one counter, the second includes the first.
        let mut earlier = HashMap::new();
        let mut grants = SmallVec::new();
        for (index, (charge, found)) in charges.iter().zip(found).enumerate() {
            let name = &names[index];
            let before = *earlier.get(name.as_ref()).unwrap_or(&found);
            let hits = hits_of(index, before.total);
            let after = self.charge(&Charge { hits, ..*charge }, name, before, now);
            if charges.len() > 1 {
                earlier.insert(name.as_ref(), after);
            }
            grants.push(Grant {
                hits: hits.unsigned_abs(),
                total: after.total,
            });
        }
        grants
    }

    async fn read_states(
        &self,
        names: &[MemcacheKey<'_>],
        deadline: Instant,
    ) -> SmallVec<[CounterState; 4]> {
        // A request without counters does not need memcached.
        if names.is_empty() {
            return SmallVec::new();
        }
        let found = self.client.read(names, deadline).await;
        found
            .into_iter()
            .map(|found| CounterState {
                read: found,
                total: value(found),
            })
            .collect()
    }

    /// Charges a counter in the background, and returns its expected value.
    fn charge(
        &self,
        charge: &Charge<'_>,
        name: &MemcacheKey<'_>,
        before: CounterState,
        now: Seconds,
    ) -> CounterState {
        let hits = charge.hits.unsigned_abs();
        let (change, total, hits) = match charge.change {
            CounterChange::Add if before.total >= MAX_ADDED_HITS => (
                memcache::ChangeDirection::Add,
                before.total.saturating_add(hits),
                0,
            ),
            CounterChange::Add => (
                memcache::ChangeDirection::Add,
                before.total.saturating_add(hits),
                hits.min(MAX_ADDED_HITS),
            ),
            CounterChange::Refund => (
                memcache::ChangeDirection::Subtract,
                before.total.saturating_sub(hits),
                hits,
            ),
        };
        if hits == 0 {
            return CounterState { total, ..before };
        }
        let expiry = Expiry::after(charge.time_to_live.into(), now.0);
        self.client.change(memcache::Charge {
            key: name.as_ref(),
            change,
            hits,
            found: before.read,
            expiry,
        });
        let found = match (before.read, charge.change) {
            (CounterRead::Missing | CounterRead::Unknown, CounterChange::Add) => {
                CounterRead::Count(total)
            }
            (found, _) => found,
        };
        CounterState { read: found, total }
    }
}

fn names<'k>(charges: &[Charge<'k>]) -> SmallVec<[MemcacheKey<'k>; 4]> {
    charges
        .iter()
        .map(|charge| MemcacheKey::from_key(charge.key))
        .collect()
}

/// Returns the value of a counter. One that cannot be read, or is no number, counts as zero, as in
/// the reference.
fn value(found: CounterRead) -> u64 {
    match found {
        CounterRead::Count(count) => count,
        CounterRead::Missing | CounterRead::Foreign | CounterRead::Unknown => 0,
    }
}
