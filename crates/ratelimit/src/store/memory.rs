//! Counters in this process.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::DefaultHashBuilder;

use super::counters::Counters;
use super::{Change, Charge, StoreError, Totals};
use crate::request::Timestamp;
use crate::window::Seconds;

/// Enough that two cores rarely meet, and few enough that an idle store costs nothing.
const MAX_SHARDS: usize = 64;
/// Smaller stores have fewer shards, because each shard has its own share of the bound.
const MIN_KEYS_PER_SHARD: usize = 1024;
/// Keys count towards the bound by this many bytes each: a typical one has 40, so only unusual keys meet this bound first.
const MEAN_KEY_BYTES: usize = 256;
/// Offsets of keys are 32 bits wide; twice this, with the keys of evicted counters, must fit.
const MAX_SHARD_BYTES: usize = 1 << 30;

/// Counters in this process. A clone is another handle on the same counters.
///
/// The store is bounded. When it is full, counters of windows that are over go first, then counters of the window that
/// ends soonest: their counts are forgotten, so those limits start again from zero and let more pass than they should.
/// [`MemoryStore::evictions`] tells how often that happened.
///
/// Unlike in Redis, a limit per minute and a limit per hour for the same entries never share a counter.
#[derive(Debug, Clone)]
pub struct MemoryStore {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    hasher: DefaultHashBuilder,
    shards: Box<[Mutex<Shard>]>,
    bound: Bound,
    evictions: AtomicU64,
}

/// The most that one shard holds.
#[derive(Debug, Clone, Copy)]
struct Bound {
    keys: usize,
    key_bytes: usize,
}

/// Counters whose keys hash alike, grouped by the end of their window. There are as many groups as units in use, and for a
/// moment the window before.
#[derive(Debug, Default)]
struct Shard {
    windows: Vec<Counters>,
}

impl MemoryStore {
    /// An empty store of at most `max_keys` counters, but at least one; long keys count more.
    #[must_use]
    pub fn new(max_keys: usize) -> Self {
        let shards = (max_keys / MIN_KEYS_PER_SHARD).clamp(1, MAX_SHARDS);
        // Rounded down to a power of two, so that a mask picks the shard.
        let shards = 1 << shards.ilog2();
        let keys = (max_keys / shards).max(1);
        let key_bytes = keys.saturating_mul(MEAN_KEY_BYTES).min(MAX_SHARD_BYTES);
        Self {
            shared: Arc::new(Shared {
                hasher: DefaultHashBuilder::default(),
                shards: (0..shards).map(|_| Mutex::default()).collect(),
                bound: Bound { keys, key_bytes },
                evictions: AtomicU64::new(0),
            }),
        }
    }

    /// Drops the counters of windows that ended at `now` or before, and returns how many they were.
    ///
    /// A window is dropped as a whole: the cost does not depend on the number of its counters.
    pub fn purge(&self, now: Timestamp) -> usize {
        let now = Seconds::from(now);
        let mut dropped = 0;
        for shard in &self.shared.shards {
            // The lock is only held to take the windows out; freeing their memory can wait for nobody.
            let passed: Vec<Counters> = lock(shard).windows.extract_if(.., |window| window.end <= now).collect();
            dropped += passed.iter().map(Counters::len).sum::<usize>();
        }
        dropped
    }

    /// The number of counters, with those of passed windows that were not purged yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.shards.iter().map(|shard| lock(shard).len()).sum()
    }

    /// Whether there is no counter.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many counters of running windows were forgotten because the store was full, since it was made.
    #[must_use]
    pub fn evictions(&self) -> u64 {
        self.shared.evictions.load(Relaxed)
    }

    pub(crate) fn read(&self, charges: &[Charge<'_>]) -> Totals {
        let read = |charge: &Charge<'_>| {
            let (shard, hash) = self.shared.shard(charge.key);
            let shard = lock(shard);
            let window = shard.windows.iter().find(|window| window.end == charge.window.end());
            window.and_then(|window| window.get(hash, charge.key)).unwrap_or(0).unsigned_abs()
        };
        charges.iter().map(read).collect()
    }

    /// As [`super::Store::add`]. Like Redis, does the other charges when one fails.
    pub(crate) fn add(&self, charges: &[Charge<'_>], now: Seconds) -> Result<Totals, StoreError> {
        let mut failed = None;
        let mut add = |charge: &Charge<'_>| {
            let (shard, hash) = self.shared.shard(charge.key);
            let (total, evicted) = lock(shard).add(hash, charge, now, &self.shared);
            if evicted > 0 {
                self.shared.evictions.fetch_add(evicted, Relaxed);
            }
            total.unwrap_or_else(|error| {
                failed.get_or_insert(error);
                0
            })
        };
        let totals = charges.iter().map(&mut add).collect();
        failed.map_or(Ok(totals), Err)
    }
}

impl Shared {
    fn shard(&self, key: &[u8]) -> (&Mutex<Shard>, u64) {
        let hash = self.hasher.hash_one(key);
        // The table uses the lowest bits for the place and the highest seven as a tag.
        let index = (hash >> 40) as usize & (self.shards.len() - 1);
        (&self.shards[index], hash)
    }
}

/// A panic leaves counts as they were, so a poisoned lock is as good as any.
fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shard {
    fn len(&self) -> usize {
        self.windows.iter().map(Counters::len).sum()
    }

    fn key_bytes(&self) -> usize {
        self.windows.iter().map(Counters::key_bytes).sum()
    }

    /// Does one charge; returns the count after it, and how many counters were forgotten to make room.
    fn add(&mut self, hash: u64, charge: &Charge<'_>, now: Seconds, shared: &Shared) -> (Result<u64, StoreError>, u64) {
        let end = charge.window.end();
        let window = self.windows.iter_mut().find(|window| window.end == end);
        if let Some(count) = window.and_then(|window| window.get_mut(hash, charge.key)) {
            let after = match charge.change {
                Change::Charge => count.checked_add(charge.hits),
                Change::Refund => Some((*count - charge.hits).max(0)),
            };
            return (after.ok_or(StoreError::Overflow).map(|after| store(count, after)), 0);
        }
        // A counter at zero is one that does not exist: a look or a refund does not create it.
        if charge.hits == 0 || charge.change == Change::Refund {
            return (Ok(0), 0);
        }
        let evicted = self.make_room(charge.key.len(), now, shared.bound);
        let index = self.windows.iter().position(|window| window.end == end).unwrap_or_else(|| {
            self.windows.push(Counters::new(end));
            self.windows.len() - 1
        });
        self.windows[index].insert(hash, charge.key, charge.hits, &shared.hasher);
        (Ok(charge.hits.unsigned_abs()), evicted)
    }

    /// Makes room for one more key; returns how many counters of running windows were forgotten for it.
    fn make_room(&mut self, key_bytes: usize, now: Seconds, bound: Bound) -> u64 {
        let is_full =
            |shard: &Self| shard.len() >= bound.keys || shard.key_bytes().saturating_add(key_bytes) > bound.key_bytes;
        if !is_full(self) {
            return 0;
        }
        self.windows.retain(|window| window.end > now && window.len() > 0);
        let mut evicted = 0;
        while is_full(self) {
            let Some(soonest) = self.windows.iter_mut().min_by_key(|window| window.end) else { break };
            if soonest.evict() {
                evicted += 1;
            } else {
                let end = soonest.end;
                self.windows.retain(|window| window.end != end);
            }
        }
        evicted
    }
}

fn store(count: &mut i64, after: i64) -> u64 {
    *count = after;
    after.unsigned_abs()
}
