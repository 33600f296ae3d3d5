//! Counters known to be over their limit, so that the store need not be asked again before the window ends.

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

/// Gauges of the over-limit cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LocalCacheStats {
    /// Entries dropped to make room.
    pub evacuate_count: u64,
    /// Entries found after their time was up.
    pub expired_count: u64,
    /// Entries now.
    pub entry_count: u64,
    /// Always 0: it means something only inside the reference's cache, and is kept for dashboards that name it.
    pub average_access_time: u64,
    /// Lookups that found an entry.
    pub hit_count: u64,
    /// Lookups that found none.
    pub miss_count: u64,
    /// All lookups.
    pub lookup_count: u64,
    /// Insertions of a key that was there already.
    pub overwrite_count: u64,
}

/// A bounded set of counter keys, each with the time at which it is forgotten.
#[derive(Debug)]
pub(crate) struct LocalCache {
    entries: Cache<Box<[u8]>, Seconds, Bytes, DefaultHashBuilder, Evictions>,
    evictions: Evictions,
    expired: AtomicU64,
    hits: AtomicU64,
    misses: AtomicU64,
    overwrites: AtomicU64,
}

impl LocalCache {
    /// A cache of about `bytes` bytes; none for 0.
    pub(crate) fn new(bytes: usize) -> Option<Self> {
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
            entries: Cache::with_options(options, Bytes, DefaultHashBuilder::default(), evictions.clone()),
            evictions,
            expired: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            overwrites: AtomicU64::new(0),
        })
    }

    /// Whether the counter is known to be over its limit.
    pub(crate) fn contains(&self, key: &[u8], now: Seconds) -> bool {
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

    /// Remembers a counter until `expires`, which is not before the end of its window.
    pub(crate) fn insert(&self, key: &[u8], expires: Seconds) {
        if self.entries.peek(key).is_some() {
            // The key names the window, so the entry that is there lasts as long as it is of use.
            self.overwrites.fetch_add(1, Relaxed);
            return;
        }
        self.entries.insert(key.into(), expires);
    }

    /// Forgets a counter.
    pub(crate) fn remove(&self, key: &[u8]) {
        self.entries.remove(key);
    }

    pub(crate) fn stats(&self) -> LocalCacheStats {
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

#[derive(Debug, Clone)]
struct Bytes;

impl Weighter<Box<[u8]>, Seconds> for Bytes {
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
