//! The keys with the most hits, in a fixed number of slots: a new key replaces the one with the
//! fewest hits, and takes over its hits ("space saving", Metwally and others, 2005). So no key in a
//! slot is counted too low. A key that replaced no other is counted exactly until decisions are
//! skipped.

use super::{Key, MAX_COUNTED, MOST, SAMPLED, TopKey, shorten};

#[derive(Debug, Default)]
pub(super) struct Top {
    hashes: Vec<u64>,
    /// One key for each hash.
    keys: Vec<TopKey>,
    /// Number of decisions that were counted, at most one more than [`MAX_COUNTED_DECISIONS`].
    decisions: u32,
    /// Whether a key was evicted.
    has_evicted: bool,
}

impl Top {
    /// Returns the number of decisions that the next one stands for.
    pub(super) fn next_weight(&mut self) -> u32 {
        if self.decisions < MAX_COUNTED {
            self.decisions += 1;
            return 1;
        }
        if self.decisions == MAX_COUNTED {
            self.decisions += 1;
            self.keys.iter_mut().for_each(|key| key.is_estimate = true);
        }
        SAMPLED
    }

    fn is_sampled(&self) -> bool {
        self.decisions > MAX_COUNTED
    }

    /// Returns whether all keys without a slot have no hits.
    pub(super) fn is_complete(&self) -> bool {
        !self.has_evicted && !self.is_sampled()
    }

    pub(super) fn add(&mut self, hash: u64, key: Key<'_>, hits: u64) {
        if let Some(place) = self.hashes.iter().position(|known| *known == hash) {
            self.keys[place].hits = self.keys[place].hits.saturating_add(hits);
            return;
        }
        let (domain, entries) = shorten::key(key);
        let new = TopKey {
            domain,
            entries,
            hits,
            is_estimate: self.is_sampled(),
        };
        if self.keys.len() < MOST {
            self.hashes.push(hash);
            self.keys.push(new);
            return;
        }
        let fewest = (0..MOST)
            .min_by_key(|place| self.keys[*place].hits)
            .expect("there are places");
        let hits = new.hits.saturating_add(self.keys[fewest].hits);
        self.hashes[fewest] = hash;
        self.keys[fewest] = TopKey {
            hits,
            is_estimate: true,
            ..new
        };
        self.has_evicted = true;
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &TopKey)> {
        self.hashes.iter().copied().zip(&self.keys)
    }
}
