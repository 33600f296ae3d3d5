//! Parses the header block of a call, encoded with HPACK (RFC 7541, section 6).

use std::ops::Range;

use http::uri::Authority;

use super::huffman;

/// The index of `:authority` in the static table of HPACK, and its name.
const AUTHORITY: (usize, &[u8]) = (1, b":authority");
/// Flags of a HEADERS frame: padding, whose length comes first, and a priority of five bytes.
const PADDED_FLAG: u8 = 0x08;
const PRIORITY_FLAG: u8 = 0x20;
/// The flag in the length byte of a string literal: the string is Huffman-coded.
const HUFFMAN_FLAG: u8 = 0x80;

/// Replaces `:authority` in a HEADERS frame if the HTTP/2 library would reject it. A block that
/// cannot be parsed is left to the library.
pub(super) fn rewrite(flags: u8, payload: &mut [u8]) {
    let Some(block) = header_block(flags, payload) else {
        return;
    };
    let Some(name) = (HeaderBlockReader { block, at: 0 }).authority() else {
        return;
    };
    let text = &mut block[name.bytes];
    if name.is_huffman {
        let Some((characters, bits)) = huffman::decode(text) else {
            return;
        };
        if Authority::try_from(characters.as_slice()).is_err() {
            // A name with rare characters stays unchanged: its Huffman code is longer than clear
            // text.
            huffman::fill_with_letters(text, characters.len(), bits);
        }
    } else if Authority::try_from(&*text).is_err() {
        for byte in text
            .iter_mut()
            .filter(|byte| !byte.is_ascii_alphanumeric() && !b".-_".contains(byte))
        {
            *byte = b'-';
        }
    }
}

/// The payload of a HEADERS frame without its padding and its priority.
fn header_block(flags: u8, payload: &mut [u8]) -> Option<&mut [u8]> {
    let mut range = 0..payload.len();
    if flags & PADDED_FLAG != 0 {
        let padding = usize::from(*payload.first()?);
        range = 1..payload.len().saturating_sub(padding);
    }
    if flags & PRIORITY_FLAG != 0 {
        range.start += 5;
    }
    payload.get_mut(range)
}

/// A string literal in a header block.
struct StringLiteral {
    bytes: Range<usize>,
    is_huffman: bool,
}

struct HeaderBlockReader<'a> {
    block: &'a [u8],
    at: usize,
}

impl HeaderBlockReader<'_> {
    /// Finds `:authority` if it is a literal. Returns `None` if it is in the dynamic table, where
    /// an earlier literal put it, or if the block cannot be parsed.
    fn authority(&mut self) -> Option<StringLiteral> {
        while let Some(first) = self.block.get(self.at) {
            // Most fields are indexed, and their index fits in this byte.
            if (0x80..0xff).contains(first) {
                self.at += 1;
                continue;
            }
            let name = match first.leading_zeros() {
                // An indexed field.
                0 => {
                    self.integer(7)?;
                    continue;
                }
                // A literal with incremental indexing, and the index of its name.
                1 => self.integer(6)?,
                // A dynamic table size update.
                2 => {
                    self.integer(5)?;
                    continue;
                }
                // A literal without indexing.
                _ => self.integer(4)?,
            };
            let is_authority = if name == 0 {
                let name = self.string_literal()?;
                self.is_authority(&name)
            } else {
                name == AUTHORITY.0
            };
            let value = self.string_literal()?;
            if is_authority {
                return Some(value);
            }
        }
        None
    }

    fn is_authority(&self, name: &StringLiteral) -> bool {
        let text = &self.block[name.bytes.clone()];
        // `:authority` is shorter as a Huffman code than as text, so a longer string is another
        // name.
        if name.is_huffman && text.len() <= AUTHORITY.1.len() {
            huffman::decode(text).is_some_and(|(characters, _)| characters == AUTHORITY.1)
        } else {
            text == AUTHORITY.1
        }
    }

    /// Reads an integer whose prefix has `bits` bits (section 5.1).
    fn integer(&mut self, bits: u32) -> Option<usize> {
        let max_prefix = (1 << bits) - 1;
        let mut number = usize::from(*self.block.get(self.at)?) & max_prefix;
        self.at += 1;
        if number < max_prefix {
            return Some(number);
        }
        // Three more bytes encode more than any length that fits in a frame.
        for index in 0..3 {
            let byte = usize::from(*self.block.get(self.at)?);
            self.at += 1;
            number += (byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    /// Reads a string literal (section 5.2). Returns `None` if the block ends before it.
    fn string_literal(&mut self) -> Option<StringLiteral> {
        let is_compressed = self.block.get(self.at)? & HUFFMAN_FLAG != 0;
        let length = self.integer(7)?;
        let bytes = self.at..self.at.checked_add(length)?;
        self.at = bytes.end;
        (bytes.end <= self.block.len()).then_some(StringLiteral {
            bytes,
            is_huffman: is_compressed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `:authority` compressed, and `a|b`, `www.example.com`.
    const NAME_COMPRESSED: &[u8] = b"\x88\xb8\x3b\x53\x39\xec\x32\x7d\x7f";
    const BAR: &[u8] = b"\x83\x1f\xfc\x8f";
    const EXAMPLE: &[u8] = b"\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff";

    fn check(flags: u8, parts: &[&[u8]], expected: &[&[u8]]) {
        let mut payload = parts.concat();
        rewrite(flags, &mut payload);
        assert_eq!(payload, expected.concat(), "{flags} {parts:?}");
    }

    #[test]
    fn names_that_hosts_cannot_have_are_replaced_where_they_stand_in_full() {
        for how in [
            b"\x41".as_slice(),
            b"\x01",
            b"\x11",
            b"\x40\x0a:authority",
            b"\0\x0a:authority",
        ] {
            check(
                0,
                &[b"\x83\x86", how, b"\x05a/b|c", b"\x84"],
                &[b"\x83\x86", how, b"\x05a-b-c", b"\x84"],
            );
        }
        check(
            0,
            &[b"\x40", NAME_COMPRESSED, b"\x03a:/"],
            &[b"\x40", NAME_COMPRESSED, b"\x03a--"],
        );
        for name in [
            "a:1:2",
            "a%2Fb",
            "/run/a.sock",
            "a b",
            "\u{e4}",
            "a\\b",
            "[a",
            "a@",
        ] {
            let length = [name.len() as u8];
            let mended: String = name
                .bytes()
                .map(|byte| {
                    if byte.is_ascii_alphanumeric() || byte == b'.' {
                        char::from(byte)
                    } else {
                        '-'
                    }
                })
                .collect();
            check(
                0,
                &[b"\x41", &length, name.as_bytes()],
                &[b"\x41", &length, mended.as_bytes()],
            );
        }
    }

    #[test]
    fn a_compressed_name_becomes_one_of_as_many_letters_in_as_many_bytes() {
        // 22 bits of three letters: eight, eight and six.
        check(0, &[b"\x41", BAR], &[b"\x41", b"\x83\xfc\xfc\x5b"]);
    }

    #[test]
    fn names_of_hosts_and_all_else_stay() {
        for name in [
            "tidegate",
            "tidegate:8081",
            "10.0.0.1:8081",
            "[::1]:8081",
            "a_b.c",
        ] {
            let field = [b"\x41".as_slice(), &[name.len() as u8], name.as_bytes()].concat();
            check(0, &[&field], &[&field]);
        }
        for other in [
            b"\x41".as_slice(),
            b"\x40\x01x\x03a|b",
            b"\x44\x03/|/",
            b"\x81",
            b"\x3f\xe1\x1f\x82",
        ] {
            check(0, &[other], &[other]);
        }
        check(0, &[b"\x41", EXAMPLE], &[b"\x41", EXAMPLE]);
    }

    #[test]
    fn padding_and_priority_are_no_headers() {
        let field = b"\x41\x03a|b".as_slice();
        let mended = b"\x41\x03a-b".as_slice();
        check(
            PADDED_FLAG,
            &[b"\x02", field, b"\x41\x03"],
            &[b"\x02", mended, b"\x41\x03"],
        );
        check(
            PRIORITY_FLAG,
            &[b"\x41\x03|||", field],
            &[b"\x41\x03|||", mended],
        );
        check(
            PADDED_FLAG | PRIORITY_FLAG,
            &[b"\x01\x41\x03|||", field, b"\0"],
            &[b"\x01\x41\x03|||", mended, b"\0"],
        );
        for short in [
            b"".as_slice(),
            b"\x41",
            b"\xff\xff\xff\xff\xff\xff",
            b"\x05\0",
        ] {
            for flags in [PADDED_FLAG, PRIORITY_FLAG, PADDED_FLAG | PRIORITY_FLAG] {
                check(flags, &[short], &[short]);
            }
        }
    }

    /// Whatever comes, it is read once from its begin to its end, and keeps its length.
    #[test]
    fn any_bytes_are_read() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..200_000 {
            let mut bytes: Vec<u8> = (0..random.usize(..40)).map(|_| random.u8(..)).collect();
            let length = bytes.len();
            rewrite(random.u8(..), &mut bytes);
            assert_eq!(bytes.len(), length);
        }
    }
}
