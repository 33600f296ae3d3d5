//! The Huffman code of strings in headers (RFC 7541, appendix B).

/// Number of characters with codes of each length in bits, which is the index. Codes of one length
/// are consecutive, and precede those of the next length.
const CODES_PER_LENGTH: [u16; 31] = [
    0, 0, 0, 0, 0, 10, 26, 32, 6, 0, 5, 3, 2, 6, 2, 3, 0, 0, 0, 3, 8, 13, 26, 29, 12, 4, 15, 19,
    29, 0, 4,
];
/// Characters in the order of their codes. Missing characters have longer codes, and are in no host
/// name.
const CHARACTERS: &[u8] =
    b"012aceiost %-./3456789=A_bdfghlmnpru:BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz&*,;XZ!\"()?'+|#>\0$@[]~^}<`{";
/// Stands for a character that [`CHARACTERS`] does not have.
const PLACEHOLDER: u8 = 0xff;
/// The position of the end-of-string code in the order of codes.
const END_OF_STRING: u16 = 256;

/// Decodes a string. Returns its characters and the number of bits of their codes, or `None` if the
/// string is invalid.
pub(super) fn decode(text: &[u8]) -> Option<(Vec<u8>, usize)> {
    // The shortest code has five bits.
    let mut characters = Vec::with_capacity(text.len() * 8 / 5);
    let mut code = 0_u32;
    let mut length = 0;
    let mut decoded_bits = 0;
    // The first code of this length, and the number of characters with shorter codes.
    let mut first = 0;
    let mut shorter = 0;
    for bit in bits(text) {
        code = code << 1 | bit;
        length += 1;
        let count = *CODES_PER_LENGTH.get(length)?;
        if let Some(index) = code
            .checked_sub(first)
            .filter(|index| *index < u32::from(count))
        {
            let index = shorter + index as u16;
            if index == END_OF_STRING {
                return None;
            }
            characters.push(
                CHARACTERS
                    .get(usize::from(index))
                    .copied()
                    .unwrap_or(PLACEHOLDER),
            );
            decoded_bits += length;
            code = 0;
            length = 0;
            first = 0;
            shorter = 0;
        } else {
            shorter += count;
            first = (first + u32::from(count)) << 1;
        }
    }
    // The last byte is padded with ones.
    (length < 8 && code == (1 << length) - 1).then_some((characters, decoded_bits))
}

/// The bits of a string, the highest of each byte first.
fn bits(text: &[u8]) -> impl Iterator<Item = u32> {
    text.iter()
        .flat_map(|byte| (0..8).rev().map(move |bit| u32::from(byte >> bit) & 1))
}

/// Fills `text` with `letters` letters whose codes have `bits` bits in all. Returns false, and
/// changes nothing, if no such letters exist.
pub(super) fn fill_with_letters(text: &mut [u8], letters: usize, bits: usize) -> bool {
    const A: (u32, usize) = (0b00011, 5);
    const HYPHEN: (u32, usize) = (0b01_0110, 6);
    const B: (u32, usize) = (0b101_1101, 7);
    const X: (u32, usize) = (0b1111_1100, 8);
    // Letters of five bits, as many of eight bits as are needed, and at most one of six or seven
    // bits.
    let Some(extra_bits) = bits.checked_sub(5 * letters) else {
        return false;
    };
    if extra_bits > 3 * letters || bits > 8 * text.len() {
        return false;
    }
    let wide = extra_bits / 3;
    let between = [None, Some(HYPHEN), Some(B)][extra_bits % 3];
    let narrow = letters - wide - usize::from(between.is_some());
    let codes = std::iter::repeat_n(X, wide)
        .chain(between)
        .chain(std::iter::repeat_n(A, narrow));
    let bits =
        codes.flat_map(|(code, length)| (0..length).rev().map(move |bit| code >> bit & 1 == 1));
    text.fill(0xff);
    for (at, bit) in bits.enumerate() {
        if !bit {
            text[at / 8] &= !(0x80 >> (at % 8));
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &[u8], expected: &str) {
        let (characters, bits) = decode(text).unwrap();
        assert_eq!(String::from_utf8(characters).unwrap(), expected);
        assert!(
            bits <= 8 * text.len() && bits + 8 > 8 * text.len(),
            "{bits}"
        );
    }

    /// The examples of RFC 7541, appendix C.
    #[test]
    fn the_examples_of_the_standard_are_read() {
        check(
            b"\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff",
            "www.example.com",
        );
        check(b"\xa8\xeb\x10\x64\x9c\xbf", "no-cache");
        check(b"\x25\xa8\x49\xe9\x5b\xb8\xe8\xb4\xbf", "custom-value");
        check(
            b"\x9d\x29\xad\x17\x18\x63\xc7\x8f\x0b\x97\xc8\xe9\xae\x82\xae\x43\xd3",
            "https://www.example.com",
        );
        let cookie = b"\x94\xe7\x82\x1d\xd7\xf2\xe6\xc7\xb3\x35\xdf\xdf\xcd\x5b\x39\x60\xd5\xaf\x27\x08\x7f\x36\x72\xc1\xab\x27\x0f\xb5\x29\x1f\x95\x87\x31\x60\x65\xc0\x03\xed\x4e\xe5\xb1\x06\x3d\x50\x07";
        check(
            cookie,
            "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
        );
    }

    #[test]
    fn characters_with_long_codes_are_counted() {
        // A backslash has 19 bits, the byte 0x80 has 20.
        assert_eq!(decode(b"\xff\xfe\x1f").unwrap(), (vec![PLACEHOLDER], 19));
        assert_eq!(decode(b"\xff\xfe\x6f").unwrap(), (vec![PLACEHOLDER], 20));
    }

    #[test]
    fn what_is_not_filled_up_with_ones_is_no_text() {
        for text in [b"\0".as_slice(), b"\xff", b"\xff\xff\xff\xff", b"\x1f\xff"] {
            assert!(decode(text).is_none(), "{text:?}");
        }
    }

    #[test]
    fn letters_take_the_bits_that_they_should() {
        for letters in 1_usize..40 {
            for bits in 5 * letters - 1..=8 * letters + 1 {
                let mut text = vec![0; bits.div_ceil(8)];
                let filled = fill_with_letters(&mut text, letters, bits);
                assert_eq!(
                    filled,
                    (5 * letters..=8 * letters).contains(&bits),
                    "{letters} {bits}"
                );
                if filled {
                    let (characters, decoded_bits) = decode(&text).unwrap();
                    assert_eq!((characters.len(), decoded_bits), (letters, bits));
                    assert!(
                        characters.iter().all(|letter| b"aX-B".contains(letter)),
                        "{characters:?}"
                    );
                }
            }
        }
    }
}
