//! The cache of exceeded limits: the store need not be asked about a counter that is over its limit until its window ends.
//!
//! All cores share one table, so that what one learns, all know. Nearly all uses are lookups, and these write nothing: an entry is
//! two words, and the first one alone says whether it is the right one.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

use super::cores::Lookups;
use crate::window::Seconds;

/// The reference's library does not go below this size.
const MIN_BYTES: usize = 512 << 10;
/// Entries among which a key has its place: one line of the processor's cache.
const WAYS: usize = 4;
/// A tag that no key has.
const EMPTY: u64 = 0;

/// Figures of the cache of exceeded limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LocalCacheStats {
    /// Entries that were dropped to make room.
    pub evacuate_count: u64,
    /// Entries that had expired when they were looked up.
    pub expired_count: u64,
    /// Current entries.
    pub entry_count: u64,
    /// Always 0. Kept for dashboards of the reference, whose cache has this figure.
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

/// A bounded set of counter keys, each with the time at which it expires.
#[derive(Debug)]
pub(super) struct LocalCache {
    sets: Box<[Set]>,
    /// Keyed at random and strong, so that no client can choose keys that meet in a set or have equal tags.
    hasher: RandomState,
    entries: AtomicI64,
    evictions: AtomicU64,
    overwrites: AtomicU64,
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Set([Entry; WAYS]);

/// A key, known by its hash alone. Among 2^k keys, a lookup of another key finds one of them once in 2^(64 - k) times.
#[derive(Debug, Default)]
struct Entry {
    tag: AtomicU64,
    /// Seconds since the epoch. A key contains the start of its window, so nobody asks for it after that window: what is read here
    /// while another core replaces the entry cannot prolong a refusal.
    expires: AtomicU64,
}

impl LocalCache {
    /// Makes a cache of about `bytes` bytes, taken at once; `None` when `bytes` is 0.
    pub(super) fn new(bytes: usize) -> Option<Self> {
        if bytes == 0 {
            return None;
        }
        let sets = bytes.max(MIN_BYTES) / size_of::<Set>();
        Some(Self {
            sets: std::iter::repeat_with(Set::default).take(sets).collect(),
            hasher: RandomState::new(),
            entries: AtomicI64::new(0),
            evictions: AtomicU64::new(0),
            overwrites: AtomicU64::new(0),
        })
    }

    /// Whether the counter is known to be over its limit. Notes in `lookups` what was found.
    pub(super) fn contains(&self, key: &[u8], now: Seconds, lookups: &Lookups) -> bool {
        let (set, tag) = self.place(key);
        let found = set.find(tag).is_some_and(|entry| {
            let current = entry.expires.load(Relaxed) > now.0;
            if !current {
                lookups.expired.fetch_add(1, Relaxed);
                self.clear(entry, tag);
            }
            current
        });
        if found { &lookups.hits } else { &lookups.misses }.fetch_add(1, Relaxed);
        found
    }

    /// Adds a counter until `expires`, which is at or after the end of its window.
    pub(super) fn insert(&self, key: &[u8], expires: Seconds) {
        let (set, tag) = self.place(key);
        if set.find(tag).is_some() {
            // The key contains the start of the window, so that the existing entry lasts long enough.
            self.overwrites.fetch_add(1, Relaxed);
            return;
        }
        let entry = set.find(EMPTY).unwrap_or_else(|| &set.0[fastrand::usize(..WAYS)]);
        entry.expires.store(expires.0, Relaxed);
        match entry.tag.swap(tag, Relaxed) {
            EMPTY => self.entries.fetch_add(1, Relaxed).unsigned_abs(),
            _ => self.evictions.fetch_add(1, Relaxed),
        };
    }

    /// Removes a counter.
    pub(super) fn remove(&self, key: &[u8]) {
        let (set, tag) = self.place(key);
        // Two cores may have added it at the same time.
        set.0.iter().for_each(|entry| self.clear(entry, tag));
    }

    pub(super) fn stats(&self, lookups: &Lookups) -> LocalCacheStats {
        let (hit_count, miss_count) = (lookups.hits.load(Relaxed), lookups.misses.load(Relaxed));
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

    fn place(&self, key: &[u8]) -> (&Set, u64) {
        let hash = self.hasher.hash_one(key);
        let set = (u128::from(hash) * self.sets.len() as u128) >> 64;
        (&self.sets[set as usize], hash.max(EMPTY + 1))
    }

    fn clear(&self, entry: &Entry, tag: u64) {
        if entry.tag.load(Relaxed) == tag && entry.tag.compare_exchange(tag, EMPTY, Relaxed, Relaxed).is_ok() {
            self.entries.fetch_sub(1, Relaxed);
        }
    }
}

impl Set {
    fn find(&self, tag: u64) -> Option<&Entry> {
        self.0.iter().find(|entry| entry.tag.load(Relaxed) == tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_bytes_are_no_cache() {
        assert!(LocalCache::new(0).is_none());
    }

    #[test]
    fn an_entry_is_found_until_its_time_is_up() {
        let (cache, lookups) = (LocalCache::new(1).unwrap(), Lookups::default());
        assert!(!cache.contains(b"a", Seconds(10), &lookups));
        cache.insert(b"a", Seconds(20));
        cache.insert(b"a", Seconds(20));
        assert!(cache.contains(b"a", Seconds(19), &lookups));
        assert!(!cache.contains(b"a", Seconds(20), &lookups));
        assert!(!cache.contains(b"a", Seconds(19), &lookups), "an expired entry is gone");
        let expected = LocalCacheStats {
            expired_count: 1,
            hit_count: 1,
            miss_count: 3,
            lookup_count: 4,
            overwrite_count: 1,
            ..LocalCacheStats::default()
        };
        assert_eq!(cache.stats(&lookups), expected);
    }

    #[test]
    fn a_removed_entry_is_gone() {
        let (cache, lookups) = (LocalCache::new(1).unwrap(), Lookups::default());
        cache.insert(b"a", Seconds(20));
        cache.remove(b"b");
        assert!(cache.contains(b"a", Seconds(1), &lookups));
        cache.remove(b"a");
        assert!(!cache.contains(b"a", Seconds(1), &lookups));
        assert_eq!(cache.stats(&lookups).entry_count, 0);
    }

    #[test]
    fn size_is_bounded_in_bytes() {
        let (cache, lookups) = (LocalCache::new(1).unwrap(), Lookups::default());
        assert_eq!(size_of_val(&*cache.sets), MIN_BYTES);
        for number in 0..200_000_u64 {
            cache.insert(&number.to_be_bytes(), Seconds(1));
        }
        let stats = cache.stats(&lookups);
        assert_eq!(stats.entry_count + stats.evacuate_count, 200_000);
        let room = MIN_BYTES / size_of::<Entry>();
        assert!((room * 9 / 10..=room).contains(&(stats.entry_count as usize)), "{stats:?}");
    }
}
