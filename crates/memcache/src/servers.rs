//! The list of servers, and the rule that assigns each key to a server.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tidegate_pipeline::Address;

/// A list of servers that may change. Clones share one list.
#[derive(Debug, Clone)]
pub struct Servers(Arc<ArcSwap<Vec<Address>>>);

impl Servers {
    /// Creates a list. The order decides which server has a key. A server that is listed twice gets
    /// twice as many keys.
    #[must_use]
    pub fn new(list: Vec<Address>) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(list)))
    }

    /// Replaces the list for all clients. Returns whether the new list differs.
    pub fn replace(&self, list: Vec<Address>) -> bool {
        let differs = **self.0.load() != list;
        if differs {
            self.0.store(Arc::new(list));
        }
        differs
    }

    /// Returns the current list.
    #[must_use]
    pub fn list(&self) -> Arc<Vec<Address>> {
        self.0.load_full()
    }

    /// Returns whether `list` is the current list.
    pub(crate) fn is_current(&self, list: &Arc<Vec<Address>>) -> bool {
        Arc::ptr_eq(&self.0.load(), list)
    }
}

/// Returns the index of the server that has a key, by the rule of Go's memcache client: the CRC-32
/// of the key modulo the number of servers.
pub(crate) fn server_index(key: &[u8], servers: usize) -> usize {
    if servers == 1 {
        0
    } else {
        crc32fast::hash(key) as usize % servers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Results of Go's `crc32.ChecksumIEEE`, which gomemcache uses.
    #[test]
    fn keys_are_where_the_reference_puts_them() {
        for (key, crc) in GO {
            assert_eq!(crc32fast::hash(key.as_bytes()), crc, "{key}");
            for servers in 2..=5 {
                assert_eq!(
                    server_index(key.as_bytes(), servers),
                    crc as usize % servers,
                    "{key}"
                );
            }
        }
        assert_eq!(server_index(b"123456789", 1), 0);
    }

    const GO: [(&str, u32); 4] = [
        ("", 0),
        ("123456789", 0xcbf4_3926),
        ("domain_key_value_1234", 0xb5ea_4ec5),
        (
            "prefix:domain_key2_value2_subkey2_subvalue2_1200",
            0xebd3_59dc,
        ),
    ];
}
