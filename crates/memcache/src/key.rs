//! Keys in the form that memcached accepts.

use std::borrow::Cow;

use ring::digest::{SHA256, digest};

/// Maximum length of a key in bytes that memcached accepts.
const MAX_KEY_BYTES: usize = 250;
/// Prefix of the digest that replaces a key that memcached rejects.
const DIGEST_PREFIX: &[u8] = b"tidegate_sha256_";

/// A key that memcached accepts: at most 250 bytes, without spaces and control characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemcacheKey<'k>(Cow<'k, [u8]>);

impl<'k> MemcacheKey<'k> {
    /// Returns the key itself, or its SHA-256 digest if memcached would reject the key. The digest
    /// is the same on all servers of Tidegate and has no known collision.
    #[must_use]
    pub fn from_key(key: &'k [u8]) -> Self {
        let legal = !key.is_empty()
            && key.len() <= MAX_KEY_BYTES
            && key.iter().all(|&byte| byte > b' ' && byte != 0x7f);
        Self(if legal {
            Cow::Borrowed(key)
        } else {
            Cow::Owned(digest_key(key))
        })
    }
}

impl AsRef<[u8]> for MemcacheKey<'_> {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

#[cold]
fn digest_key(key: &[u8]) -> Vec<u8> {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let digest = digest(&SHA256, key);
    let hex = digest
        .as_ref()
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .map(|half| HEX[usize::from(half)]);
    DIGEST_PREFIX.iter().copied().chain(hex).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(key: &str, kept: bool) {
        let name = MemcacheKey::from_key(key.as_bytes());
        assert_eq!(name.as_ref() == key.as_bytes(), kept, "{key:?}");
        assert!(
            name.as_ref().len() <= MAX_KEY_BYTES && name.as_ref().iter().all(|byte| *byte > b' '),
            "{key:?}"
        );
    }

    #[test]
    fn what_memcached_does_not_take_is_digested() {
        check("shop_user_ada_1234", true);
        check("shop_user_\u{e9}_1234", true);
        check(&"x".repeat(250), true);
        for key in [
            "",
            "a b",
            "a\tb",
            "a\r\nflush_all",
            "a\u{7f}b",
            "a\0b",
            &"x".repeat(251),
        ] {
            check(key, false);
        }
        assert_eq!(
            MemcacheKey::from_key(b"a b").as_ref(),
            b"tidegate_sha256_c8687a08aa5d6ed2044328fa6a697ab8e96dc34291e8c2034ae8c38e6fcc6d65"
        );
    }
}
