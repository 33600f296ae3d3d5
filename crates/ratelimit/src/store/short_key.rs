//! Stores long counter keys as digests, so that no counter takes more memory than a few others.

use std::hash::{BuildHasher, RandomState};

/// Maximum length in bytes of a key that is stored as it is.
const MAX_KEY_BYTES: usize = 255;

/// Digests with random keys of this process, so that clients cannot find two keys with one digest.
#[derive(Debug, Default)]
pub(super) struct Digests {
    halves: [RandomState; 2],
}

/// A key of at most 255 bytes.
#[derive(Debug)]
pub(super) enum KeyOrDigest<'k> {
    Whole(&'k [u8]),
    Digest([u8; 16]),
}

impl Digests {
    /// Returns the key itself, or its digest if the key is long.
    #[inline]
    pub(super) fn shorten<'k>(&self, key: &'k [u8]) -> KeyOrDigest<'k> {
        if key.len() <= MAX_KEY_BYTES {
            KeyOrDigest::Whole(key)
        } else {
            KeyOrDigest::Digest(self.digest(key))
        }
    }

    #[cold]
    fn digest(&self, key: &[u8]) -> [u8; 16] {
        let [high, low] = self
            .halves
            .each_ref()
            .map(|half| u128::from(half.hash_one(key)));
        (high << 64 | low).to_be_bytes()
    }
}

impl AsRef<[u8]> for KeyOrDigest<'_> {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Whole(key) => key,
            Self::Digest(digest) => digest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_keys_are_shortened_and_stay_distinct() {
        let digests = Digests::default();
        let key = vec![b'x'; MAX_KEY_BYTES + 1];
        let short = |key: &[u8]| digests.shorten(key).as_ref().to_vec();
        assert_eq!(short(&key[1..]), key[1..]);
        assert_eq!(short(&key).len(), 16);
        assert_eq!(short(&key), short(&key.clone()));
        for index in 0..key.len() {
            let mut other = key.clone();
            other[index] = b'y';
            assert_ne!(short(&other), short(&key));
        }
        assert_ne!(
            Digests::default().shorten(&key).as_ref(),
            short(&key),
            "another process has others"
        );
    }
}
