//! The cache of exceeded limits: the store need not be asked about a counter that is over its limit until its window ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use hashbrown::DefaultHashBuilder;
use quick_cache::sync::Cache;
use quick_cache::{Lifecycle, OptionsBuilder, Weighter};

use crate::window::Seconds;

/// The reference's library does not go below this size.
const MIN_BYTES: usize = 512 << 10;
/// What an entry costs beside its key: expiry, key pointer, hash table and queue slots of the cache.
const ENTRY_BYTES: u64 = 64;

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
    entries: Cache<Box<[u8]>, Seconds, EntryBytes, DefaultHashBuilder, Evictions>,
    evictions: Evictions,
    expired: AtomicU64,
    hits: AtomicU64,
    misses: AtomicU64,
    overwrites: AtomicU64,
}

impl LocalCache {
    /// Makes a cache of about `bytes` bytes; `None` when `bytes` is 0.
    pub(super) fn new(bytes: usize) -> Option<Self> {
        if bytes == 0 {
            return None;
        }
        let bytes = bytes.max(MIN_BYTES) as u64;
        let evictions = Evictions::default();
        let options = OptionsBuilder::new()
            .weight_capacity(bytes)
            // 40 bytes is a typical key; the estimate only sizes the shards.
            .estimated_items_capacity((bytes / (ENTRY_BYTES + 40)) as usize)
            .build()
            .expect("both required options are set");
        Some(Self {
            entries: Cache::with_options(options, EntryBytes, DefaultHashBuilder::default(), evictions.clone()),
            evictions,
            expired: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            overwrites: AtomicU64::new(0),
        })
    }

    /// Whether the counter is known to be over its limit.
    pub(super) fn contains(&self, key: &[u8], now: Seconds) -> bool {
        let found = match self.entries.get(key) {
            Some(expires) if expires > now => true,
            Some(_) => {
                self.expired.fetch_add(1, Relaxed);
                self.entries.remove_if(key, |expires| *expires <= now);
                false
            }
            None => false,
        };
        if found { &self.hits } else { &self.misses }.fetch_add(1, Relaxed);
        found
    }

    /// Adds a counter until `expires`, which is at or after the end of its window.
    pub(super) fn insert(&self, key: &[u8], expires: Seconds) {
        if self.entries.peek(key).is_some() {
            // The key contains the start of the window, so that the existing entry lasts long enough.
            self.overwrites.fetch_add(1, Relaxed);
            return;
        }
        self.entries.insert(key.into(), expires);
    }

    /// Removes a counter.
    pub(super) fn remove(&self, key: &[u8]) {
        self.entries.remove(key);
    }

    pub(super) fn stats(&self) -> LocalCacheStats {
        let (hit_count, miss_count) = (self.hits.load(Relaxed), self.misses.load(Relaxed));
        LocalCacheStats {
            evacuate_count: self.evictions.0.load(Relaxed),
            expired_count: self.expired.load(Relaxed),
            entry_count: self.entries.len() as u64,
            average_access_time: 0,
            hit_count,
            miss_count,
            lookup_count: hit_count + miss_count,
            overwrite_count: self.overwrites.load(Relaxed),
        }
    }
}

/// Weighs entries in bytes.
#[derive(Debug, Clone)]
struct EntryBytes;

impl Weighter<Box<[u8]>, Seconds> for EntryBytes {
    fn weight(&self, key: &Box<[u8]>, _: &Seconds) -> u64 {
        key.len() as u64 + ENTRY_BYTES
    }
}

/// Counts what the cache drops to make room.
#[derive(Debug, Clone, Default)]
struct Evictions(Arc<AtomicU64>);

impl Lifecycle<Box<[u8]>, Seconds> for Evictions {
    type RequestState = ();

    fn on_evict(&self, _: &mut (), _: Box<[u8]>, _: Seconds) {
        self.0.fetch_add(1, Relaxed);
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
        let cache = LocalCache::new(1).unwrap();
        assert!(!cache.contains(b"a", Seconds(10)));
        cache.insert(b"a", Seconds(20));
        cache.insert(b"a", Seconds(20));
        assert!(cache.contains(b"a", Seconds(19)));
        assert!(!cache.contains(b"a", Seconds(20)));
        assert!(!cache.contains(b"a", Seconds(19)), "an expired entry is gone");
        let expected = LocalCacheStats {
            expired_count: 1,
            hit_count: 1,
            miss_count: 3,
            lookup_count: 4,
            overwrite_count: 1,
            ..LocalCacheStats::default()
        };
        assert_eq!(cache.stats(), expected);
    }

    #[test]
    fn size_is_bounded_in_bytes() {
        let cache = LocalCache::new(1).unwrap();
        let key_bytes = 1_000;
        for number in 0..2_000_u64 {
            let mut key = vec![0; key_bytes];
            key[..8].copy_from_slice(&number.to_be_bytes());
            cache.insert(&key, Seconds(1));
        }
        let stats = cache.stats();
        assert!(stats.entry_count as usize * key_bytes <= MIN_BYTES, "{stats:?}");
        assert!(stats.entry_count > 0, "{stats:?}");
        assert_eq!(stats.entry_count + stats.evacuate_count, 2_000);
    }
}
