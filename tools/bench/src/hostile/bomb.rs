//! A small message that unpacks to a large one.

use std::sync::LazyLock;

/// Bytes that one code repeats, the most that there can be.
const REPEATED: u32 = 258;
/// 64 KiB of codes.
const CODES: u32 = 40_000;

/// A gzip file of 64 KiB that unpacks to 10 MB.
pub(super) fn gzip() -> &'static [u8] {
    static FILE: LazyLock<Vec<u8>> = LazyLock::new(|| gzip_of_zeros(CODES));
    &FILE
}

/// A gzip file of a zero and `codes` times more of them, with the fixed codes of DEFLATE (RFC 1951, 3.2.6).
fn gzip_of_zeros(codes: u32) -> Vec<u8> {
    let mut bits = Bits::default();
    // The last block, with fixed codes; these three bits come lowest first, codes highest first.
    bits.put(0b110, 3);
    // The literal 0.
    bits.put(0x30, 8);
    for _ in 0..codes {
        // A length of 258, and a distance of 1.
        bits.put(0b1100_0101, 8);
        bits.put(0, 5);
    }
    // The end of the block.
    bits.put(0, 7);
    let length = 1 + REPEATED * codes;
    let mut file = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    file.extend(bits.bytes);
    file.extend(check_of_zeros(length).to_le_bytes());
    file.extend(length.to_le_bytes());
    file
}

/// CRC-32 of this many zeros.
fn check_of_zeros(length: u32) -> u32 {
    let shift = |crc: u32| {
        if crc & 1 == 1 {
            crc >> 1 ^ 0xedb8_8320
        } else {
            crc >> 1
        }
    };
    !(0..u64::from(length) * 8).fold(u32::MAX, |crc, _| shift(crc))
}

/// Bits, filled into bytes from the lowest.
#[derive(Default)]
struct Bits {
    bytes: Vec<u8>,
    used: u32,
}

impl Bits {
    /// The highest of `count` bits first.
    fn put(&mut self, code: u32, count: u32) {
        for at in (0..count).rev() {
            if self.used.is_multiple_of(8) {
                self.bytes.push(0);
            }
            if let Some(last) = self.bytes.last_mut() {
                *last |= ((code >> at & 1) as u8) << (self.used % 8);
            }
            self.used += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_gzip_file_of_zeros() {
        // `gzip -dc` makes 517 zeros of it.
        let expected = b"\x1f\x8b\x08\0\0\0\0\0\0\xff\x63\x18\x05\xa3\0\x001\x18}Q\x05\x02\0\0";
        assert_eq!(gzip_of_zeros(2), expected);
        assert!((64_000..70_000).contains(&gzip().len()), "{}", gzip().len());
    }
}
