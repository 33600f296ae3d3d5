//! The keys with the most hits, in a fixed number of slots: a new key replaces the one with the
//! fewest hits, and takes over its hits ("space saving", Metwally and others, 2005). So no key in a
//! slot is counted too low. A key that replaced no other is counted exactly until decisions are
//! skipped.

use super::{Key, MAX_COUNTED_DECISIONS, MAX_SKETCH_ITEMS, SAMPLE_EVERY, TopKey, shorten};

#[derive(Debug, Default)]
pub(super) struct TopKeys {
    hashes: Vec<u64>,
    /// One key for each hash.
    keys: Vec<TopKey>,
    /// Number of decisions that were counted, at most one more than [`MAX_COUNTED_DECISIONS`].
    decisions: u32,
    /// Whether a key was evicted.
    has_evicted: bool,
}

impl TopKeys {
    /// Returns the number of decisions that the next one stands for.
    pub(super) fn next_weight(&mut self) -> u32 {
        if self.decisions < MAX_COUNTED_DECISIONS {
            self.decisions += 1;
            return 1;
        }
        if self.decisions == MAX_COUNTED_DECISIONS {
            self.decisions += 1;
            self.keys.iter_mut().for_each(|key| key.is_estimate = true);
        }
        SAMPLE_EVERY
    }

    fn is_sampled(&self) -> bool {
        self.decisions > MAX_COUNTED_DECISIONS
    }

    /// Returns whether all keys without a slot have no hits.
    pub(super) fn is_complete(&self) -> bool {
        !self.has_evicted && !self.is_sampled()
    }

    /// Whether a key was replaced by another one.
    pub(super) fn has_evicted(&self) -> bool {
        self.has_evicted
    }

    /// Adds hits to a key, and returns it.
    pub(super) fn add(&mut self, hash: u64, key: Key<'_>, hits: u64) -> &mut TopKey {
        if let Some(slot) = self.position(hash) {
            self.keys[slot].hits = self.keys[slot].hits.saturating_add(hits);
            return &mut self.keys[slot];
        }
        let short = shorten::key(key);
        let new = TopKey {
            domain: short.domain,
            entries: short.entries,
            is_cut: short.is_cut,
            hits,
            is_estimate: self.is_sampled(),
            refused: Default::default(),
        };
        if self.keys.len() < MAX_SKETCH_ITEMS {
            self.hashes.push(hash);
            self.keys.push(new);
            return self.keys.last_mut().expect("it was just added");
        }
        self.replace_fewest(hash, new)
    }

    /// Replaces the key with the fewest hits. The new one may have had as many before.
    fn replace_fewest(&mut self, hash: u64, new: TopKey) -> &mut TopKey {
        let fewest = (0..MAX_SKETCH_ITEMS)
            .min_by_key(|slot| self.keys[*slot].hits)
            .expect("there are places");
        let hits = new.hits.saturating_add(self.keys[fewest].hits);
        self.hashes[fewest] = hash;
        self.keys[fewest] = TopKey {
            hits,
            is_estimate: true,
            ..new
        };
        self.has_evicted = true;
        &mut self.keys[fewest]
    }

    /// Adds a key without hits, and returns it. `None` if that would replace another one.
    pub(super) fn add_without_hits(&mut self, hash: u64, key: Key<'_>) -> Option<&mut TopKey> {
        let has_room = self.keys.len() < MAX_SKETCH_ITEMS || self.position(hash).is_some();
        has_room.then(|| self.add(hash, key, 0))
    }

    fn position(&self, hash: u64) -> Option<usize> {
        self.hashes.iter().position(|existing| *existing == hash)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &TopKey)> {
        self.hashes.iter().copied().zip(&self.keys)
    }
}
