//! The cache of exceeded limits: the store is not called for a counter that was just over its
//! limit.
//!
//! An entry has the value of a counter, not a decision: a raised or scaled limit, or one in a
//! request, is compared with that value. It is valid for some seconds only, because the counter may
//! have gone down without this server: another server refunded hits, or the store lost it.
//!
//! All cores share one table, so that each uses what another learned. Nearly all uses are look-ups,
//! and these write nothing: an entry is two words in one cache line of the processor.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

use super::CacheLookups;
use crate::model::{Seconds, Unit};

/// Minimum size in bytes. The reference's library has the same minimum.
const MIN_CACHE_BYTES: usize = 512 << 10;
/// Number of entries that a key can be in: one cache line of the processor.
const SLOTS_PER_SET: usize = 4;
/// A tag that no counter has.
const EMPTY_TAG: u64 = 0;
/// Seconds for which an entry is valid. A refund at another server may be missed for this time, and
/// a counter in constant use costs its store one command in this time.
const VALID_SECONDS: u32 = 10;

/// Counts of the cache of exceeded limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LocalCacheStats {
    /// Entries that were dropped to make room.
    pub evacuate_count: u64,
    /// Entries that had expired when they were looked up.
    pub expired_count: u64,
    /// Current entries.
    pub entry_count: u64,
    /// Always 0. It exists for dashboards of the reference, whose cache has this figure.
    pub average_access_time: u64,
    /// Lookups that found an entry.
    pub hit_count: u64,
    /// Lookups that found none.
    pub miss_count: u64,
    /// All lookups.
    pub lookup_count: u64,
    /// Insertions of a key that the cache had already.
    pub overwrite_count: u64,
}

/// The name of a counter in the cache. Limits with windows of different lengths may have counters
/// with one key.
#[derive(Debug, Clone, Copy, Hash)]
pub(super) struct CounterName<'k> {
    pub(super) key: &'k [u8],
    pub(super) unit: Unit,
}

/// A bounded set of counters, each with its last known value.
#[derive(Debug)]
pub(super) struct LocalCache {
    sets: Box<[CacheSet]>,
    /// A strong hash with random keys, so that no client can choose keys that share a set or have
    /// equal tags.
    hasher: RandomState,
    entries: AtomicI64,
    evictions: AtomicU64,
    overwrites: AtomicU64,
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct CacheSet([CacheSlot; SLOTS_PER_SET]);

/// A counter, identified by its hash alone. Among 2^k counters, a look-up of another one finds one
/// of them once in 2^(64 - k) times.
#[derive(Debug, Default)]
struct CacheSlot {
    /// The tag and the count, combined by exclusive or: two words that different cores wrote give a
    /// tag that no look-up uses.
    masked_tag: AtomicU64,
    /// A [`CachedCount`].
    count: AtomicU64,
}

/// The last known value of a counter, and the end of its validity.
#[derive(Debug, Clone, Copy)]
struct CachedCount {
    /// 2^32 - 1 also stands for all higher values.
    total: u32,
    /// The lowest 32 bits of a time in seconds.
    valid_until: u32,
}

impl CachedCount {
    fn new(total: u64, now: Seconds) -> Self {
        Self {
            total: u32::try_from(total).unwrap_or(u32::MAX),
            valid_until: low_bits(now).wrapping_add(VALID_SECONDS),
        }
    }

    /// Returns whether the count is still valid. A clock that is set back does not prolong its
    /// validity.
    fn is_current(self, now: Seconds) -> bool {
        (1..=VALID_SECONDS).contains(&self.valid_until.wrapping_sub(low_bits(now)))
    }

    fn to_bits(self) -> u64 {
        u64::from(self.total) << 32 | u64::from(self.valid_until)
    }

    fn from_bits(bits: u64) -> Self {
        Self {
            total: (bits >> 32) as u32,
            valid_until: bits as u32,
        }
    }
}

fn low_bits(now: Seconds) -> u32 {
    now.0 as u32
}

impl LocalCache {
    /// Creates a cache of about `bytes` bytes, allocated at once. `None` if `bytes` is 0.
    pub(super) fn new(bytes: usize) -> Option<Self> {
        if bytes == 0 {
            return None;
        }
        let sets = bytes.max(MIN_CACHE_BYTES) / size_of::<CacheSet>();
        Some(Self {
            sets: std::iter::repeat_with(CacheSet::default)
                .take(sets)
                .collect(),
            hasher: RandomState::new(),
            entries: AtomicI64::new(0),
            evictions: AtomicU64::new(0),
            overwrites: AtomicU64::new(0),
        })
    }

    /// Returns whether the counter is known to be over this limit. Counts the look-up in `lookups`.
    pub(super) fn is_over(
        &self,
        counter: CounterName<'_>,
        limit: u32,
        now: Seconds,
        lookups: &CacheLookups,
    ) -> bool {
        let (set, tag) = self.set_and_tag(counter);
        let over = set.find(tag).is_some_and(|(slot, cached)| {
            let current = cached.is_current(now);
            if !current {
                lookups.expired.fetch_add(1, Relaxed);
                self.clear(slot, tag);
            }
            current && cached.total > limit
        });
        if over { &lookups.hits } else { &lookups.misses }.fetch_add(1, Relaxed);
        over
    }

    /// Records that a counter over its limit held `total` just now.
    pub(super) fn insert(&self, counter: CounterName<'_>, total: u64, now: Seconds) {
        let (set, tag) = self.set_and_tag(counter);
        let cached = CachedCount::new(total, now);
        if let Some((slot, _)) = set.find(tag) {
            slot.write(tag, cached);
            self.overwrites.fetch_add(1, Relaxed);
            return;
        }
        let slot = set.find(EMPTY_TAG).map_or_else(
            || &set.0[fastrand::usize(..SLOTS_PER_SET)],
            |(slot, _)| slot,
        );
        match slot.write(tag, cached) {
            EMPTY_TAG => self.entries.fetch_add(1, Relaxed).unsigned_abs(),
            _ => self.evictions.fetch_add(1, Relaxed),
        };
    }

    /// Removes a counter.
    pub(super) fn remove(&self, counter: CounterName<'_>) {
        let (set, tag) = self.set_and_tag(counter);
        // Two cores may have added it at the same time.
        set.0.iter().for_each(|slot| self.clear(slot, tag));
    }

    pub(super) fn stats(&self, lookups: &CacheLookups) -> LocalCacheStats {
        let hit_count = lookups.hits.load(Relaxed);
        let miss_count = lookups.misses.load(Relaxed);
        LocalCacheStats {
            evacuate_count: self.evictions.load(Relaxed),
            expired_count: lookups.expired.load(Relaxed),
            entry_count: self.entries.load(Relaxed).max(0).unsigned_abs(),
            average_access_time: 0,
            hit_count,
            miss_count,
            lookup_count: hit_count + miss_count,
            overwrite_count: self.overwrites.load(Relaxed),
        }
    }

    fn set_and_tag(&self, counter: CounterName<'_>) -> (&CacheSet, u64) {
        let hash = self.hasher.hash_one(counter);
        let set = (u128::from(hash) * self.sets.len() as u128) >> 64;
        (&self.sets[set as usize], hash.max(EMPTY_TAG + 1))
    }

    fn clear(&self, slot: &CacheSlot, tag: u64) {
        let bits = slot.count.load(Relaxed);
        let cleared =
            slot.masked_tag
                .compare_exchange(tag ^ bits, EMPTY_TAG ^ bits, Relaxed, Relaxed);
        if cleared.is_ok() {
            self.entries.fetch_sub(1, Relaxed);
        }
    }
}

impl CacheSet {
    fn find(&self, tag: u64) -> Option<(&CacheSlot, CachedCount)> {
        self.0.iter().find_map(|slot| {
            let bits = slot.count.load(Relaxed);
            (slot.masked_tag.load(Relaxed) ^ bits == tag)
                .then_some((slot, CachedCount::from_bits(bits)))
        })
    }
}

impl CacheSlot {
    /// Writes an entry and returns its previous tag.
    fn write(&self, tag: u64, cached: CachedCount) -> u64 {
        let bits = cached.to_bits();
        let earlier = self.count.swap(bits, Relaxed);
        self.masked_tag.swap(tag ^ bits, Relaxed) ^ earlier
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minute(key: &[u8]) -> CounterName<'_> {
        CounterName {
            key,
            unit: Unit::Minute,
        }
    }

    #[test]
    fn zero_bytes_are_no_cache() {
        assert!(LocalCache::new(0).is_none());
    }

    #[test]
    fn an_entry_is_valid_for_some_seconds() {
        let cache = LocalCache::new(1).unwrap();
        let lookups = CacheLookups::default();
        let is_over = |second| cache.is_over(minute(b"a"), 5, Seconds(second), &lookups);
        assert!(!is_over(20));
        cache.insert(minute(b"a"), 6, Seconds(19));
        cache.insert(minute(b"a"), 6, Seconds(20));
        assert!(is_over(29));
        assert!(!is_over(30));
        assert!(!is_over(29), "an entry that expired is gone");
        let expected = LocalCacheStats {
            expired_count: 1,
            hit_count: 1,
            miss_count: 3,
            lookup_count: 4,
            overwrite_count: 1,
            ..LocalCacheStats::default()
        };
        assert_eq!(cache.stats(&lookups), expected);
        for set_back in [1, 1_000] {
            cache.insert(minute(b"a"), 6, Seconds(20_000));
            assert!(
                !is_over(20_000 - set_back),
                "the clock was set back by {set_back} s"
            );
        }
        let wraps = u64::from(u32::MAX) - 2;
        cache.insert(minute(b"a"), 6, Seconds(wraps));
        assert!(is_over(wraps + 9) && !is_over(wraps + 10));
    }

    #[test]
    fn what_a_counter_held_is_compared_with_the_limit() {
        let cache = LocalCache::new(1).unwrap();
        let lookups = CacheLookups::default();
        let is_over = |limit| cache.is_over(minute(b"a"), limit, Seconds(1), &lookups);
        cache.insert(minute(b"a"), 11, Seconds(1));
        assert_eq!([0, 10, 11, 100].map(is_over), [true, true, false, false]);
        cache.insert(minute(b"a"), u64::MAX, Seconds(1));
        assert_eq!(
            [100, u32::MAX - 1, u32::MAX].map(is_over),
            [true, true, false]
        );
        let hour = CounterName {
            key: b"a",
            unit: Unit::Hour,
        };
        assert!(
            !cache.is_over(hour, 10, Seconds(1), &lookups),
            "another window has another counter"
        );
    }

    #[test]
    fn a_removed_entry_is_gone() {
        let cache = LocalCache::new(1).unwrap();
        let lookups = CacheLookups::default();
        let is_over = || cache.is_over(minute(b"a"), 5, Seconds(1), &lookups);
        cache.insert(minute(b"a"), 6, Seconds(1));
        cache.remove(minute(b"b"));
        assert!(is_over());
        cache.remove(minute(b"a"));
        assert!(!is_over());
        assert_eq!(cache.stats(&lookups).entry_count, 0);
    }

    #[test]
    fn words_of_two_writers_are_no_entry() {
        let cache = LocalCache::new(1).unwrap();
        let (set, tag) = cache.set_and_tag(minute(b"a"));
        cache.insert(minute(b"a"), 6, Seconds(1));
        let (entry, _) = set.find(tag).unwrap();
        entry
            .count
            .store(CachedCount::new(7, Seconds(1)).to_bits(), Relaxed);
        assert!(set.find(tag).is_none());
    }

    #[test]
    fn size_is_bounded_in_bytes() {
        let cache = LocalCache::new(1).unwrap();
        let lookups = CacheLookups::default();
        assert_eq!(size_of_val(&*cache.sets), MIN_CACHE_BYTES);
        for number in 0..200_000_u64 {
            cache.insert(minute(&number.to_be_bytes()), 6, Seconds(1));
        }
        let stats = cache.stats(&lookups);
        assert_eq!(stats.entry_count + stats.evacuate_count, 200_000);
        let room = MIN_CACHE_BYTES / size_of::<CacheSlot>();
        assert!(
            (room * 9 / 10..=room).contains(&(stats.entry_count as usize)),
            "{stats:?}"
        );
    }
}
