//! Shortens keys to a bounded length, whatever a client sends.

use super::Key;
use crate::model::Entry;

/// Maximum bytes of a domain, and of all entries of a key.
const MAX_KEY_BYTES: usize = 256;
const MAX_KEY_ENTRIES: usize = 16;

/// Returns the domain and the entries, each cut if it is too long.
pub(super) fn key(key: Key<'_>) -> (String, Vec<Entry>) {
    let mut left = MAX_KEY_BYTES;
    let mut entries = Vec::with_capacity(key.entries.len().min(MAX_KEY_ENTRIES));
    for entry in key.entries.iter().take(MAX_KEY_ENTRIES) {
        let mut part = |text: &str| {
            let part = cut(text, left);
            left -= part.len();
            part.to_owned()
        };
        entries.push(Entry {
            key: part(&entry.key),
            value: part(&entry.value),
        });
    }
    (cut(key.domain, MAX_KEY_BYTES).to_owned(), entries)
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
        let (domain, short) = key(Key {
            domain: &long,
            entries: &entries,
        });
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
        assert_eq!(
            key(Key {
                domain: "",
                entries: &many
            })
            .1
            .len(),
            16
        );
    }
}
