//! The counters of one window. They are in two allocations, so that dropping them costs the same whatever their number.

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::window::Seconds;

/// The counters of all windows that end at the same second.
#[derive(Debug)]
pub(super) struct WindowCounters {
    pub(super) end: Seconds,
    table: HashTable<Counter>,
    /// All keys, one after the other, also those of evicted counters.
    keys: Vec<u8>,
    /// Bytes of `keys` that belong to evicted counters.
    dead_bytes: usize,
    /// The bucket of the table that was evicted last.
    last_evicted: usize,
}

#[derive(Debug)]
struct Counter {
    key_start: u32,
    key_length: u32,
    count: i64,
}

impl Counter {
    fn key<'k>(&self, keys: &'k [u8]) -> &'k [u8] {
        &keys[self.key_start as usize..][..self.key_length as usize]
    }
}

impl WindowCounters {
    pub(super) fn new(end: Seconds) -> Self {
        Self { end, table: HashTable::new(), keys: Vec::new(), dead_bytes: 0, last_evicted: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// Bytes of the keys.
    pub(super) fn key_bytes(&self) -> usize {
        self.keys.len() - self.dead_bytes
    }

    pub(super) fn get(&self, hash: u64, key: &[u8]) -> Option<i64> {
        self.table.find(hash, |counter| counter.key(&self.keys) == key).map(|counter| counter.count)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, hash: u64, key: &[u8]) -> Option<&mut i64> {
        self.table.find_mut(hash, |counter| counter.key(&self.keys) == key).map(|counter| &mut counter.count)
    }

    /// Adds a counter. There must be none with this key.
    pub(super) fn insert(&mut self, hash: u64, key: &[u8], count: i64, hasher: &DefaultHashBuilder) {
        use std::hash::BuildHasher;

        let offset = |value: usize| u32::try_from(value).expect("the store bounds the bytes of a window below 4 GiB");
        let counter = Counter { key_start: offset(self.keys.len()), key_length: offset(key.len()), count };
        self.keys.extend_from_slice(key);
        let keys = &self.keys;
        self.table.insert_unique(hash, counter, |counter| hasher.hash_one(counter.key(keys)));
    }

    /// Drops any one counter. Returns false when there is none.
    pub(super) fn evict(&mut self) -> bool {
        if self.table.is_empty() {
            return false;
        }
        // Going around the table spreads the evictions: a counter that was just added is not evicted next.
        let evicted = loop {
            self.last_evicted = (self.last_evicted + 1) % self.table.num_buckets();
            if let Ok(entry) = self.table.get_bucket_entry(self.last_evicted) {
                break entry.remove().0;
            }
        };
        self.dead_bytes += evicted.key_length as usize;
        if self.dead_bytes > self.keys.len() / 2 {
            self.compact();
        }
        true
    }

    /// Removes the keys of evicted counters from `keys`.
    fn compact(&mut self) {
        let mut keys = Vec::with_capacity(self.key_bytes());
        for counter in self.table.iter_mut() {
            let start = keys.len() as u32;
            keys.extend_from_slice(counter.key(&self.keys));
            counter.key_start = start;
        }
        self.keys = keys;
        self.dead_bytes = 0;
    }
}
