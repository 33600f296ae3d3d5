//! Counters in this process.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::DefaultHashBuilder;

use super::window_counters::WindowCounters;
use super::{Change, Charge, StoreError, Totals};
use crate::request::Timestamp;
use crate::window::Seconds;

/// With 64 shards two cores rarely want the same lock, and an empty store stays small.
const MAX_SHARDS: usize = 64;
/// Smaller stores have fewer shards, because each shard has its own share of the bound.
const MIN_KEYS_PER_SHARD: usize = 1024;
/// The bound on the bytes of all keys allows this mean length. A typical key has 40 bytes, so that the bound on the number
/// of keys comes first.
const MEAN_KEY_BYTES: usize = 256;
/// Offsets of keys have 32 bits. Twice this number must fit, because keys of evicted counters take room too.
const MAX_SHARD_BYTES: usize = 1 << 30;

/// Counters in this process. Clones share the counters.
///
/// The store is bounded. When it is full, it drops counters of windows that have ended, then counters of the window that
/// ends soonest. A dropped counter starts again from zero, so that more hits pass than its limit allows;
/// [`MemoryStore::evictions`] counts these.
///
/// Unlike in Redis, a limit per minute and a limit per hour for the same entries never share a counter.
#[derive(Debug, Clone)]
pub struct MemoryStore {
    shards: Arc<Shards>,
}

#[derive(Debug)]
struct Shards {
    hasher: DefaultHashBuilder,
    shards: Box<[Mutex<Shard>]>,
    bound: Bound,
    evictions: AtomicU64,
}

/// The most that one shard may hold.
#[derive(Debug, Clone, Copy)]
struct Bound {
    keys: usize,
    key_bytes: usize,
}

/// The counters of one part of the hash space, grouped by the end of their window.
#[derive(Debug, Default)]
struct Shard {
    windows: Vec<WindowCounters>,
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
            shards: Arc::new(Shards {
                hasher: DefaultHashBuilder::default(),
                shards: (0..shards).map(|_| Mutex::default()).collect(),
                bound: Bound { keys, key_bytes },
                evictions: AtomicU64::new(0),
            }),
        }
    }

    /// Drops the counters of windows that ended at `now` or before, and returns their number.
    ///
    /// The cost depends on the number of windows, not on the number of counters.
    pub fn purge(&self, now: Timestamp) -> usize {
        let now = Seconds::from(now);
        let mut dropped = 0;
        for shard in &self.shards.shards {
            // The memory is freed after the lock was released.
            let passed: Vec<WindowCounters> = lock(shard).windows.extract_if(.., |window| window.end <= now).collect();
            dropped += passed.iter().map(WindowCounters::len).sum::<usize>();
        }
        dropped
    }

    /// The number of counters, including those of ended windows that were not purged yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shards.shards.iter().map(|shard| lock(shard).len()).sum()
    }

    /// Whether there is no counter.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of counters of current windows that were dropped because the store was full.
    #[must_use]
    pub fn evictions(&self) -> u64 {
        self.shards.evictions.load(Relaxed)
    }

    pub(crate) fn read(&self, charges: &[Charge<'_>]) -> Totals {
        let read = |charge: &Charge<'_>| {
            let (shard, hash) = self.shards.shard(charge.key);
            let shard = lock(shard);
            let window = shard.windows.iter().find(|window| window.end == charge.window.end());
            window.and_then(|window| window.get(hash, charge.key)).unwrap_or(0).unsigned_abs()
        };
        charges.iter().map(read).collect()
    }

    /// As [`super::Store::add`]. When one charge fails, the others are made nevertheless, as in Redis.
    pub(crate) fn add(&self, charges: &[Charge<'_>], now: Seconds) -> Result<Totals, StoreError> {
        let mut failed = None;
        let mut add = |charge: &Charge<'_>| {
            let (shard, hash) = self.shards.shard(charge.key);
            let (total, evicted) = lock(shard).add(hash, charge, now, &self.shards);
            if evicted > 0 {
                self.shards.evictions.fetch_add(evicted, Relaxed);
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

impl Shards {
    fn shard(&self, key: &[u8]) -> (&Mutex<Shard>, u64) {
        let hash = self.hasher.hash_one(key);
        // The table uses the lowest bits for the place and the highest seven as a tag.
        let index = (hash >> 40) as usize & (self.shards.len() - 1);
        (&self.shards[index], hash)
    }
}

/// A panic cannot leave a count half changed, so that a poisoned lock can be used.
fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shard {
    fn len(&self) -> usize {
        self.windows.iter().map(WindowCounters::len).sum()
    }

    fn key_bytes(&self) -> usize {
        self.windows.iter().map(WindowCounters::key_bytes).sum()
    }

    /// Makes one charge. Returns the new count, and how many counters were dropped to make room.
    fn add(&mut self, hash: u64, charge: &Charge<'_>, now: Seconds, shards: &Shards) -> (Result<u64, StoreError>, u64) {
        let end = charge.window.end();
        let window = self.windows.iter_mut().find(|window| window.end == end);
        if let Some(count) = window.and_then(|window| window.get_mut(hash, charge.key)) {
            return (change(count, charge), 0);
        }
        // A counter that does not exist counts as zero: zero hits or a refund need not create it.
        if charge.hits == 0 || charge.change == Change::Refund {
            return (Ok(0), 0);
        }
        let evicted = self.make_room(charge.key.len(), now, shards.bound);
        let index = self.windows.iter().position(|window| window.end == end).unwrap_or_else(|| {
            self.windows.push(WindowCounters::new(end));
            self.windows.len() - 1
        });
        self.windows[index].insert(hash, charge.key, charge.hits, &shards.hasher);
        (Ok(charge.hits.unsigned_abs()), evicted)
    }

    /// Makes room for one more key. Returns how many counters of current windows were dropped.
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

/// Makes a charge on an existing counter and returns the new count.
#[inline]
fn change(count: &mut i64, charge: &Charge<'_>) -> Result<u64, StoreError> {
    *count = match charge.change {
        Change::Add => count.checked_add(charge.hits).ok_or(StoreError::Overflow)?,
        Change::Refund => (*count - charge.hits).max(0),
    };
    Ok(count.unsigned_abs())
}
