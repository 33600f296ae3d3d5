//! The identifiers of workflows, jobs and partitions.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::Timestamp;

/// Crockford's alphabet: it sorts as the bytes do, and has no letters that look like digits.
const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

const TEXT_LENGTH: usize = 26;
/// Minimum characters of a prefix. Fewer would match all ids of several months.
const MIN_PREFIX_CHARACTERS: usize = 4;
/// Digits of 60 bits, which fit `u64`: arithmetic with 64 bits costs a fraction of that with 128.
const DIGITS_PER_WORD: usize = 12;
const PARTITION_BITS: u32 = 10;
const RANDOM_BITS: u32 = 60;
/// Bits for the microseconds within a millisecond.
const MICROS_BITS: u32 = 10;
/// The last 16 random bits of ids of small workflows.
const SMALL_MARK: u128 = 0x9bd3;
const SMALL_MASK: u128 = 0xffff;

/// The last id in order.
const MAX_ID: WorkflowId = WorkflowId([u8::MAX; 16]);

/// Maximum partitions of a store: an id has `PARTITION_BITS` bits for its partition.
pub const MAX_PARTITIONS: u16 = 1 << PARTITION_BITS;

/// Identifies a workflow: 48 bits of milliseconds, 10 bits of microseconds, 60 random bits, 10 bits
/// of partition. The last 16 random bits mark workflows whose state is one value (see
/// `codec::compact_state`). Both forms, 26 characters and 16 bytes, sort by the time of creation.
/// The partition is last, so that workflows of one moment are listed from all partitions: a page
/// reads a few rows of each.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct WorkflowId([u8; 16]);

/// A partition of the store. All data of a workflow are in one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partition(pub u16);

/// The position of a job in its workflow, in the order of the definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JobIndex(pub u32);

/// A text is not a workflow id.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "'{text}' is not a workflow id: expected 26 characters, digits and letters except I, L, O and U"
)]
pub struct InvalidId {
    /// The text, cut to 40 characters.
    pub text: String,
}

/// The first characters of an id. Ids sort by time, so ids with the same prefix are adjacent in
/// every index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdPrefix {
    first: WorkflowId,
    end: WorkflowId,
}

/// A text is not a prefix of an id.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "expected {MIN_PREFIX_CHARACTERS} to {TEXT_LENGTH} characters of an id, digits and letters except I, L, O and U"
)]
pub struct InvalidPrefix;

impl IdPrefix {
    /// The lowest id with this prefix.
    pub(crate) fn first(self) -> WorkflowId {
        self.first
    }

    /// An id after all ids with this prefix.
    pub(crate) fn end(self) -> WorkflowId {
        self.end
    }
}

impl FromStr for IdPrefix {
    type Err = InvalidPrefix;

    fn from_str(text: &str) -> Result<Self, InvalidPrefix> {
        let is_beginning = |text: &str| text.bytes().all(|character| digit(character).is_some());
        if !(MIN_PREFIX_CHARACTERS..=TEXT_LENGTH).contains(&text.len()) || !is_beginning(text) {
            return Err(InvalidPrefix);
        }
        let id = |filler: &str| {
            format!(
                "{text}{}",
                filler.repeat(TEXT_LENGTH.saturating_sub(text.len()))
            )
            .parse()
        };
        let (first, last): (Result<WorkflowId, _>, Result<WorkflowId, _>) = (id("0"), id("Z"));
        Ok(match (first, last) {
            (Ok(first), Ok(last)) => Self {
                first,
                end: last.next(),
            },
            // The first character of an id is at most 7, so no id has this prefix: the range is
            // empty.
            _ => Self {
                first: MAX_ID,
                end: MAX_ID,
            },
        })
    }
}

impl WorkflowId {
    /// An id of a workflow that is created at `now`. The low 60 bits of `random` are used.
    #[must_use]
    pub fn new(now: Timestamp, partition: Partition, random: u128) -> Self {
        let random = (random & ((1 << RANDOM_BITS) - 1)) << PARTITION_BITS;
        let partition = u128::from(partition.0 % MAX_PARTITIONS);
        Self((moment(now) | random | partition).to_be_bytes())
    }

    /// A random id of a workflow that is created at `now`, marked if the workflow is small.
    #[must_use]
    pub fn with_size(now: Timestamp, partition: Partition, is_small: bool) -> Self {
        let random = fastrand::u128(..) & !SMALL_MASK;
        // The mark is odd, so bits with a zero at the end are never the mark.
        let mark = if is_small {
            SMALL_MARK
        } else {
            fastrand::u128(..) & SMALL_MASK & !1
        };
        Self::new(now, partition, random | mark)
    }

    /// Whether the store keeps the state as one value.
    pub(crate) fn is_small(self) -> bool {
        u128::from_be_bytes(self.0) >> PARTITION_BITS & SMALL_MASK == SMALL_MARK
    }

    /// The id as bytes, which sort by time.
    #[must_use]
    pub const fn bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// The id with these [`WorkflowId::bytes`].
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The partition of the workflow.
    #[must_use]
    pub fn partition(&self) -> Partition {
        Partition((u128::from_be_bytes(self.0) % u128::from(MAX_PARTITIONS)) as u16)
    }

    /// The time of creation.
    #[must_use]
    pub fn created_at(&self) -> Timestamp {
        let moment = u128::from_be_bytes(self.0) >> (PARTITION_BITS + RANDOM_BITS);
        let millis = moment >> MICROS_BITS;
        let micros = moment % (1 << MICROS_BITS);
        Timestamp::from_micros((millis * 1_000 + micros) as u64)
    }

    /// The 26 characters of the id.
    fn text(self) -> [u8; TEXT_LENGTH] {
        let number = u128::from_be_bytes(self.0);
        let mut text = [0; TEXT_LENGTH];
        for (part, digits) in text.rchunks_mut(DIGITS_PER_WORD).enumerate() {
            let mut rest = (number >> (5 * DIGITS_PER_WORD * part)) as u64;
            for digit in digits.iter_mut().rev() {
                *digit = ALPHABET[rest as usize % ALPHABET.len()];
                rest >>= 5;
            }
        }
        text
    }

    /// Appends the 26 characters to a text.
    pub(crate) fn push_to(self, text: &mut String) {
        text.push_str(std::str::from_utf8(&self.text()).expect("the alphabet is ASCII"));
    }

    /// The next id in order.
    pub(crate) fn next(self) -> Self {
        Self(u128::from_be_bytes(self.0).saturating_add(1).to_be_bytes())
    }

    /// The lowest id that can be created at `now` or later, in any partition.
    #[must_use]
    pub fn first_at(now: Timestamp) -> Self {
        Self(moment(now).to_be_bytes())
    }
}

/// The value of each character of an id; [`NO_DIGIT`] for other bytes.
const DIGITS: [u8; 256] = {
    let mut digits = [NO_DIGIT; 256];
    let mut at = 0;
    while at < ALPHABET.len() {
        digits[ALPHABET[at] as usize] = at as u8;
        digits[ALPHABET[at].to_ascii_lowercase() as usize] = at as u8;
        at += 1;
    }
    digits
};
const NO_DIGIT: u8 = u8::MAX;

/// The value of a character of an id.
fn digit(character: u8) -> Option<u64> {
    let digit = DIGITS[usize::from(character)];
    (digit != NO_DIGIT).then_some(digit.into())
}

/// The bits of an id that hold the time.
fn moment(now: Timestamp) -> u128 {
    let millis = u128::from(now.millis());
    let micros = u128::from(now.micros() % 1_000);
    (millis << MICROS_BITS | micros) << (PARTITION_BITS + RANDOM_BITS)
}

impl Partition {
    /// The partition of a name, one of `partitions`.
    pub(crate) fn for_name(text: &str, partitions: u16) -> Self {
        Self((fnv1a(text.as_bytes()) % u64::from(partitions)) as u16)
    }
}

/// FNV-1a. It determines where data is stored, so it must not change between versions.
pub(crate) fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

impl JobIndex {
    /// The position as an index into a list.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for WorkflowId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(std::str::from_utf8(&self.text()).expect("the alphabet is ASCII"))
    }
}

impl fmt::Debug for WorkflowId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl fmt::Display for JobIndex {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl FromStr for WorkflowId {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let invalid = || InvalidId {
            text: text.chars().take(40).collect(),
        };
        // The first of 26 characters has three bits: 26 times 5 is 130.
        if text.len() != TEXT_LENGTH || !matches!(text.as_bytes()[0], b'0'..=b'7') {
            return Err(invalid());
        }
        let mut number: u128 = 0;
        for part in text.as_bytes().chunks(DIGITS_PER_WORD) {
            let mut digits = 0;
            for &character in part {
                digits = digits << 5 | digit(character).ok_or_else(invalid)?;
            }
            number = number << (5 * part.len()) | u128::from(digits);
        }
        Ok(Self(number.to_be_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_tells_its_time_and_partition_and_sorts_by_time() {
        let at = |millis: u64, partition, random| {
            WorkflowId::new(
                Timestamp::from_micros(millis * 1_000 + 7),
                Partition(partition),
                random,
            )
        };
        let id = at(1_795_000_000_123, 1_023, u128::MAX);
        assert_eq!(
            id.created_at(),
            Timestamp::from_micros(1_795_000_000_123_007)
        );
        assert_eq!(id.partition(), Partition(1_023));
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!(id.to_string().to_lowercase().parse(), Ok(id));
        let later = WorkflowId::new(
            Timestamp::from_micros(1_795_000_000_123_008),
            Partition(0),
            0,
        );
        assert!(id < later && id.to_string() < later.to_string() && id.bytes() < later.bytes());
        assert_eq!(WorkflowId::first_at(later.created_at()), later);
    }

    #[test]
    fn a_prefix_is_the_range_of_the_ids_that_begin_so() {
        let check = |text: &str, first: &str, last: &str| {
            let prefix: IdPrefix = text.parse().unwrap();
            let id = |text: &str| text.parse::<WorkflowId>().unwrap();
            assert_eq!(
                (prefix.first(), prefix.end()),
                (id(first), id(last).next()),
                "{text}"
            );
        };
        check(
            "01M7",
            "01M70000000000000000000000",
            "01M7ZZZZZZZZZZZZZZZZZZZZZZ",
        );
        check(
            "01m7z85",
            "01M7Z850000000000000000000",
            "01M7Z85ZZZZZZZZZZZZZZZZZZZ",
        );
        let whole = "01M7Z85C8H08RJZ5Q5JGPKMY04";
        check(whole, whole, whole);
        for text in [
            "",
            "01M",
            "01U7",
            "dea!",
            "01M7Z85C8H08RJZ5Q5JGPKMY040",
            "01M\u{e9}",
        ] {
            assert_eq!(text.parse::<IdPrefix>(), Err(InvalidPrefix), "{text}");
        }
        for text in ["8000", "AAAA", "dead", "ZZZZZZZZZZZZZZZZZZZZZZZZZZ"] {
            let none: IdPrefix = text.parse().unwrap();
            assert_eq!(none.first(), none.end(), "no id begins with {text}");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "abc",
            "8ZZZZZZZZZZZZZZZZZZZZZZZZZ",
            "0000000000000000000000000U",
            "0000000000000000000000000é",
        ] {
            assert!(text.parse::<WorkflowId>().is_err(), "{text}");
        }
    }
}
