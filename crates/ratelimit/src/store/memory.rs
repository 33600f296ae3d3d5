//! Counters in this process.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::DefaultHashBuilder;

use super::{
    BulkCharge, Charge, CounterChange, Digests, Grant, StoreError, Totals, WindowCounters,
};
use crate::model::{Seconds, Timestamp};

/// Bytes of one shard. Two cores rarely need the lock of one shard, and an eviction or a growing
/// table takes less than 1 ms.
const SHARD_BYTES: usize = 512 << 10;
/// Maximum number of shards: enough for 2 GiB, and for any number of cores.
const MAX_SHARDS: usize = 4096;
/// Minimum number of keys of a shard. Each shard has its share of the bounds, and with fewer keys
/// it would differ too much from the keys that hash to it.
const MIN_KEYS_PER_SHARD: usize = 1024;
/// Maximum bytes of a shard: offsets of keys in a window have 32 bits.
const MAX_SHARD_BYTES: usize = 1 << 30;

/// Counters in this process. Clones share the counters.
///
/// The store is bounded. If it is full, it drops counters of windows that have ended, then counters
/// of the window that takes the most memory. There it takes the limit with the most counters, and
/// of this limit the largest group that used about the same share of it. So a flood of new keys
/// costs other windows and limits no counter as long as these have fewer. Of its own limit it costs
/// only counters that were hit as often as its own. A dropped counter starts again from zero, so
/// that more hits pass than its limit allows; [`MemoryStore::evictions`] counts these.
///
/// Unlike in Redis, a limit per minute and a limit per hour for the same entries never share a
/// counter.
#[derive(Debug, Clone)]
pub struct MemoryStore {
    shards: Arc<Shards>,
}

/// Bounds of a store in memory. One counter always fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryBounds {
    /// Number of counters.
    pub keys: usize,
    /// Bytes of memory of counters and their tables. A growing table also needs its old memory: at
    /// most one table for each core, a few hundred thousand bytes.
    pub bytes: usize,
}

impl Default for MemoryBounds {
    /// Returns 128 MiB, which a machine of 512 MiB can spare, and any number of keys that fits.
    fn default() -> Self {
        Self {
            keys: usize::MAX,
            bytes: 128 << 20,
        }
    }
}

#[derive(Debug)]
struct Shards {
    hasher: DefaultHashBuilder,
    digests: Digests,
    shards: Box<[Mutex<Shard>]>,
    /// The bounds of one shard.
    bounds: MemoryBounds,
    evictions: AtomicU64,
}

/// The counters of one part of the hash space, grouped by the end of their window.
#[derive(Debug, Default)]
struct Shard {
    windows: Vec<WindowCounters>,
}

impl MemoryStore {
    /// Creates an empty store.
    #[must_use]
    pub fn new(bounds: MemoryBounds) -> Self {
        let shards = (bounds.keys / MIN_KEYS_PER_SHARD)
            .min(bounds.bytes / SHARD_BYTES)
            .clamp(1, MAX_SHARDS);
        // Rounded down to a power of two, so that a mask picks the shard.
        let shards = 1 << shards.ilog2();
        let bounds = MemoryBounds {
            keys: bounds.keys / shards,
            bytes: (bounds.bytes / shards).min(MAX_SHARD_BYTES),
        };
        Self {
            shards: Arc::new(Shards {
                hasher: DefaultHashBuilder::default(),
                digests: Digests::default(),
                shards: (0..shards).map(|_| Mutex::default()).collect(),
                bounds,
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
            // The memory is freed after the lock is released.
            let passed: Vec<WindowCounters> = lock(shard)
                .windows
                .extract_if(.., |window| window.end <= now)
                .collect();
            dropped += passed.iter().map(WindowCounters::len).sum::<usize>();
        }
        dropped
    }

    /// Returns the number of counters, including those of ended windows that were not purged yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shards
            .shards
            .iter()
            .map(|shard| lock(shard).len())
            .sum()
    }

    /// Returns the bytes of memory of counters and their tables.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.shards
            .shards
            .iter()
            .map(|shard| lock(shard).bytes())
            .sum()
    }

    /// Returns whether there is no counter.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of counters of current windows that were dropped because the store was
    /// full.
    #[must_use]
    pub fn evictions(&self) -> u64 {
        self.shards.evictions.load(Relaxed)
    }

    pub(crate) fn read(&self, charges: &[Charge<'_>]) -> Totals {
        let read = |charge: &Charge<'_>| {
            self.with_shard(charge, |shard, hash, charge| shard.count(hash, charge))
        };
        charges.iter().map(read).collect()
    }

    pub(crate) fn acquire(
        &self,
        requests: &[BulkCharge<'_>],
        now: Seconds,
    ) -> Vec<Result<Grant, StoreError>> {
        let acquire_one = |request: &BulkCharge<'_>| {
            // The counter is read and charged under one lock.
            let (hits, (total, evicted)) =
                self.with_shard(&request.charge, |shard, hash, charge| {
                    let hits = request.granted(shard.count(hash, charge));
                    let charge = Charge { hits, ..*charge };
                    (hits, shard.add(hash, &charge, now, &self.shards))
                });
            self.shards.evictions.fetch_add(evicted, Relaxed);
            Ok(Grant {
                hits: hits.unsigned_abs(),
                total,
            })
        };
        requests.iter().map(acquire_one).collect()
    }

    /// Makes all charges in their order, see [`super::Store::add`].
    pub(crate) fn add(&self, charges: &[Charge<'_>], now: Seconds) -> Totals {
        let add = |charge: &Charge<'_>| {
            let (total, evicted) = self.with_shard(charge, |shard, hash, charge| {
                shard.add(hash, charge, now, &self.shards)
            });
            if evicted > 0 {
                self.shards.evictions.fetch_add(evicted, Relaxed);
            }
            total
        };
        charges.iter().map(add).collect()
    }

    /// Calls `serve` with the locked shard of a counter, the hash of its short key, and the charge
    /// with that key.
    #[inline]
    fn with_shard<T>(
        &self,
        charge: &Charge<'_>,
        serve: impl FnOnce(&mut Shard, u64, &Charge<'_>) -> T,
    ) -> T {
        let key = self.shards.digests.shorten(charge.key);
        let (shard, hash) = self.shards.shard(key.as_ref());
        let charge = Charge {
            key: key.as_ref(),
            ..*charge
        };
        serve(&mut lock(shard), hash, &charge)
    }
}

impl Shards {
    fn shard(&self, key: &[u8]) -> (&Mutex<Shard>, u64) {
        let hash = self.hasher.hash_one(key);
        // The table uses the lowest bits for the position and the highest seven as a tag.
        let index = (hash >> 40) as usize & (self.shards.len() - 1);
        (&self.shards[index], hash)
    }
}

/// A panic cannot leave a count half changed, so a poisoned lock is safe to use.
fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shard {
    fn len(&self) -> usize {
        self.windows.iter().map(WindowCounters::len).sum()
    }

    fn bytes(&self) -> usize {
        self.windows.iter().map(WindowCounters::bytes).sum()
    }

    /// Returns the value of the counter of a charge.
    fn count(&self, hash: u64, charge: &Charge<'_>) -> u64 {
        let window = self
            .windows
            .iter()
            .find(|window| window.end == charge.window.end());
        window
            .and_then(|window| window.get(hash, charge.key))
            .unwrap_or(0)
            .unsigned_abs()
    }

    /// Makes one charge. Returns the new count, and the number of counters that were dropped to
    /// make room.
    #[inline]
    fn add(&mut self, hash: u64, charge: &Charge<'_>, now: Seconds, shards: &Shards) -> (u64, u64) {
        let end = charge.window.end();
        let window = self.windows.iter_mut().find(|window| window.end == end);
        if let Some(count) = window.and_then(|window| window.get_mut(hash, charge.key)) {
            return (change(count, charge), 0);
        }
        // A counter that does not exist counts as zero: zero hits or a refund need not create it.
        if charge.hits == 0 || charge.change == CounterChange::Refund {
            return (0, 0);
        }
        let evicted = self.make_room(charge, now, shards);
        let index = self
            .windows
            .iter()
            .position(|window| window.end == end)
            .unwrap_or_else(|| {
                self.windows.push(WindowCounters::new(end));
                self.windows.len() - 1
            });
        self.windows[index].insert(hash, charge, &shards.hasher);
        (charge.hits.unsigned_abs(), evicted)
    }

    /// Makes room for the counter of a charge. Returns the number of counters of current windows
    /// that were dropped.
    fn make_room(&mut self, charge: &Charge<'_>, now: Seconds, shards: &Shards) -> u64 {
        if self.has_room(charge, shards.bounds) {
            return 0;
        }
        self.windows.retain(|window| window.end > now);
        let mut evicted = 0;
        while !self.has_room(charge, shards.bounds) {
            let Some(fullest) = self.windows.iter_mut().max_by_key(|window| window.bytes()) else {
                break;
            };
            evicted += fullest.evict(&shards.hasher) as u64;
            self.windows.retain(|window| window.len() > 0);
        }
        evicted
    }

    fn has_room(&self, charge: &Charge<'_>, bounds: MemoryBounds) -> bool {
        let end = charge.window.end();
        let key_length = charge.key.len();
        let window = self.windows.iter().find(|window| window.end == end);
        let growth = window.map_or_else(
            || WindowCounters::BYTES + WindowCounters::new(end).growth(key_length),
            |window| window.growth(key_length),
        );
        self.len() < bounds.keys
            && (growth == 0 || self.bytes().saturating_add(growth) <= bounds.bytes)
    }
}

/// Makes a charge on an existing counter and returns the new count. A full counter stays full.
#[inline]
fn change(count: &mut i64, charge: &Charge<'_>) -> u64 {
    *count = match charge.change {
        CounterChange::Add => count.saturating_add(charge.hits),
        CounterChange::Refund => (*count - charge.hits).max(0),
    };
    count.unsigned_abs()
}
