//! The keys with the most hits, in a fixed number of places: a new key takes the place of the one with the fewest hits, and its
//! hits too ("space saving", Metwally and others, 2005). So no key is counted too low that has a place.

use super::{Key, MOST, TopKey, shorten};

#[derive(Debug, Default)]
pub(super) struct Top {
    hashes: Vec<u64>,
    /// One for each hash.
    keys: Vec<TopKey>,
}

impl Top {
    pub(super) fn add(&mut self, hash: u64, key: Key<'_>, hits: u64) {
        if let Some(place) = self.hashes.iter().position(|known| *known == hash) {
            self.keys[place].hits = self.keys[place].hits.saturating_add(hits);
            return;
        }
        let (domain, entries) = shorten::key(key);
        let new = TopKey { domain, entries, hits };
        if self.keys.len() < MOST {
            self.hashes.push(hash);
            self.keys.push(new);
            return;
        }
        let fewest = (0..MOST).min_by_key(|place| self.keys[*place].hits).expect("there are places");
        let hits = new.hits.saturating_add(self.keys[fewest].hits);
        self.hashes[fewest] = hash;
        self.keys[fewest] = TopKey { hits, ..new };
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &TopKey)> {
        self.hashes.iter().copied().zip(&self.keys)
    }
}
