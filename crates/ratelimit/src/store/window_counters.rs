//! The counters of one window. They are in two allocations, so that dropping them costs the same
//! whatever their number.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use super::{Charge, EvictionClass, Victims};
use crate::model::Seconds;

/// Divisor of the counters of a window that one eviction drops. It scans every counter of the
/// window, so that dropping one at a time would be slow.
const EVICTION_DIVISOR: usize = 8;
/// Divisor of the room that stays free after an eviction, so that new counters need no
/// reallocation.
const SPARE_DIVISOR: usize = 16;
/// Divisor by which the room for keys grows. Doubling would leave up to half of the bound unused.
const GROWTH_DIVISOR: usize = 4;
/// Minimum growth of the room for keys in bytes: one typical key.
const MIN_GROWTH_BYTES: usize = 64;

/// The counters of all windows that end at the same second.
#[derive(Debug)]
pub(super) struct WindowCounters {
    pub(super) end: Seconds,
    table: HashTable<StoredCounter>,
    /// All keys, one after the other.
    keys: Vec<u8>,
}

#[derive(Debug)]
struct StoredCounter {
    key_start: u32,
    key_length: u8,
    eviction_class: EvictionClass,
    count: i64,
}

impl StoredCounter {
    fn key<'k>(&self, keys: &'k [u8]) -> &'k [u8] {
        &keys[self.key_start as usize..][..self.key_length.into()]
    }
}

impl WindowCounters {
    /// Bytes of a window without counters.
    pub(super) const BYTES: usize = size_of::<Self>();

    pub(super) fn new(end: Seconds) -> Self {
        Self {
            end,
            table: HashTable::new(),
            keys: Vec::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns the bytes of memory of the window.
    pub(super) fn bytes(&self) -> usize {
        Self::BYTES + self.table.allocation_size() + self.keys.capacity()
    }

    /// Returns the bytes by which the window grows if a counter with a key of this length is added.
    pub(super) fn growth(&self, key_length: usize) -> usize {
        let table = if self.table.len() < self.table.capacity() {
            0
        } else {
            grown_table(&self.table) - self.table.allocation_size()
        };
        table + self.key_growth(key_length)
    }

    fn key_growth(&self, key_length: usize) -> usize {
        if self.keys.capacity() - self.keys.len() >= key_length {
            return 0;
        }
        (self.keys.capacity() / GROWTH_DIVISOR)
            .max(MIN_GROWTH_BYTES)
            .max(key_length)
    }

    pub(super) fn get(&self, hash: u64, key: &[u8]) -> Option<i64> {
        self.table
            .find(hash, |counter| counter.key(&self.keys) == key)
            .map(|counter| counter.count)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, hash: u64, key: &[u8]) -> Option<&mut i64> {
        self.table
            .find_mut(hash, |counter| counter.key(&self.keys) == key)
            .map(|counter| &mut counter.count)
    }

    /// Adds a counter. No counter with this key may exist.
    pub(super) fn insert(&mut self, hash: u64, charge: &Charge<'_>, hasher: &DefaultHashBuilder) {
        let counter = StoredCounter {
            key_start: offset(self.keys.len()),
            key_length: u8::try_from(charge.key.len()).expect("the store shortens longer keys"),
            eviction_class: EvictionClass::from_charge(charge),
            count: charge.hits,
        };
        let growth = self.key_growth(charge.key.len());
        if growth > 0 {
            self.keys
                .reserve_exact(self.keys.capacity() + growth - self.keys.len());
        }
        self.keys.extend_from_slice(charge.key);
        let keys = &self.keys;
        self.table
            .insert_unique(hash, counter, |counter| hasher.hash_one(counter.key(keys)));
    }

    /// Drops an eighth of the counters, at least one if there is any, and returns their number.
    pub(super) fn evict(&mut self, hasher: &DefaultHashBuilder) -> usize {
        let before = self.len();
        let classes = self
            .table
            .iter()
            .map(|counter| (counter.eviction_class, counter.count));
        let mut victims = Victims::choose(classes, before.div_ceil(EVICTION_DIVISOR));
        self.table
            .retain(|counter| !victims.is_next_victim(counter.eviction_class, counter.count));
        self.rebuild(hasher);
        before - self.len()
    }

    /// Moves all counters to new allocations, with some room to spare.
    fn rebuild(&mut self, hasher: &DefaultHashBuilder) {
        let with_spare = |size: usize| size + size / SPARE_DIVISOR;
        let key_bytes: usize = self
            .table
            .iter()
            .map(|counter| usize::from(counter.key_length))
            .sum();
        let mut keys = Vec::with_capacity(with_spare(key_bytes));
        let mut table = HashTable::with_capacity(with_spare(self.len()));
        for mut counter in self.table.drain() {
            let key = counter.key(&self.keys);
            let hash = hasher.hash_one(key);
            counter.key_start = offset(keys.len());
            keys.extend_from_slice(key);
            table.insert_unique(hash, counter, |_| {
                unreachable!("the new table has room for all counters")
            });
        }
        self.table = table;
        self.keys = keys;
    }
}

fn offset(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("the store bounds the bytes of a window below 4 GiB")
}

/// Returns the bytes of a full table after it has grown: twice the buckets, a byte more for each,
/// and one group of bytes.
fn grown_table(table: &HashTable<StoredCounter>) -> usize {
    let buckets = if table.allocation_size() == 0 {
        4
    } else {
        2 * table.num_buckets()
    };
    buckets * (size_of::<StoredCounter>() + 1) + 16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_takes_16_bytes() {
        assert_eq!(size_of::<StoredCounter>(), 16);
    }

    #[test]
    fn growth_is_known_before_it_happens() {
        let hasher = DefaultHashBuilder::default();
        let mut window = WindowCounters::new(Seconds(60));
        for number in 0..10_000_u32 {
            let key = format!("{number:0width$}", width = 5 + number as usize % 90);
            let charge = Charge::for_test(key.as_bytes(), 1);
            let expected = window.bytes() + window.growth(key.len());
            window.insert(hasher.hash_one(key.as_bytes()), &charge, &hasher);
            assert_eq!(window.bytes(), expected, "{number}");
        }
    }

    #[test]
    fn what_is_left_after_an_eviction_is_found() {
        let hasher = DefaultHashBuilder::default();
        let mut window = WindowCounters::new(Seconds(60));
        let keys: Vec<String> = (0..1_000).map(|number| format!("key {number}")).collect();
        for (hits, key) in (1..).zip(&keys) {
            window.insert(
                hasher.hash_one(key.as_bytes()),
                &Charge::for_test(key.as_bytes(), hits),
                &hasher,
            );
        }
        assert_eq!((window.evict(&hasher), window.len()), (125, 875));
        let counts = keys
            .iter()
            .map(|key| window.get(hasher.hash_one(key.as_bytes()), key.as_bytes()));
        for (hits, count) in (1..).zip(counts) {
            assert_eq!(count.unwrap_or(hits), hits);
        }
        while window.len() > 0 {
            window.evict(&hasher);
        }
        assert_eq!(
            (window.evict(&hasher), window.bytes()),
            (0, WindowCounters::BYTES)
        );
    }
}
