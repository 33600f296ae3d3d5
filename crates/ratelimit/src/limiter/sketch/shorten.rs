//! Shortens keys to a bounded length, whatever a client sends.

use super::Key;
use crate::model::Entry;

/// Maximum bytes of a domain, and of all entries of a key.
const MAX_KEY_BYTES: usize = 256;
const MAX_KEY_ENTRIES: usize = 16;

/// A key of a bounded length.
#[derive(Debug)]
pub(super) struct ShortKey {
    pub(super) domain: String,
    pub(super) entries: Vec<Entry>,
    pub(super) is_cut: bool,
}

/// Returns the key, cut if it is too long.
pub(super) fn key(key: Key<'_>) -> ShortKey {
    let mut is_cut = key.domain.len() > MAX_KEY_BYTES || key.entries.len() > MAX_KEY_ENTRIES;
    let mut left = MAX_KEY_BYTES;
    let mut entries = Vec::with_capacity(key.entries.len().min(MAX_KEY_ENTRIES));
    for entry in key.entries.iter().take(MAX_KEY_ENTRIES) {
        let mut part = |text: &str| {
            let part = cut(text, left);
            left -= part.len();
            is_cut |= part.len() < text.len();
            part.to_owned()
        };
        entries.push(Entry {
            key: part(&entry.key),
            value: part(&entry.value),
        });
    }
    ShortKey {
        domain: cut(key.domain, MAX_KEY_BYTES).to_owned(),
        entries,
        is_cut,
    }
}

/// Returns the longest prefix of at most `max_bytes` bytes that ends with a whole character.
fn cut(text: &str, max_bytes: usize) -> &str {
    let mut end = max_bytes.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_keys_lose_their_end() {
        let entry = |key: &str, value: &str| Entry {
            key: key.to_owned(),
            value: value.to_owned(),
        };
        let long = "\u{e4}".repeat(200);
        let many = vec![entry("", ""); 50];
        let entries = [entry("k", "v"), entry("k", &long), entry("later", "x")];
        let ShortKey {
            domain,
            entries: short,
            is_cut,
        } = key(Key {
            domain: &long,
            entries: &entries,
        });
        assert!(is_cut);
        assert_eq!(domain, "\u{e4}".repeat(128));
        // One byte is left that holds no such letter, and then it holds an l.
        assert_eq!(
            short,
            [
                entry("k", "v"),
                entry("k", &"\u{e4}".repeat(126)),
                entry("l", "")
            ]
        );
        let short = key(Key {
            domain: "",
            entries: &many,
        });
        assert_eq!((short.entries.len(), short.is_cut), (16, true));
        let whole = key(Key {
            domain: "d",
            entries: &many[..16],
        });
        assert!(!whole.is_cut);
    }
}
