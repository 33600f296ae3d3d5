//! The names of workflows and jobs.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::time::Timestamp;

/// Crockford's alphabet: it sorts as the bytes do, and has no letters that look like digits.
const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

const TEXT_LENGTH: usize = 26;
/// Fewer characters would match all ids of several months.
const SHORTEST_PREFIX: usize = 4;
/// Digits that are taken from 64 bits at a time, or put into them: that costs a fraction of doing
/// so with 128.
const PART: usize = 12;
const PARTITION_BITS: u32 = 10;
const RANDOM_BITS: u32 = 60;
/// Microseconds within a millisecond.
const MICROS_BITS: u32 = 10;
/// The last of the random bits, by which an id says that its workflow is a small one.
const SMALL: u128 = 0x9bd3;
const SMALL_MASK: u128 = 0xffff;

/// The last of all ids.
const LAST: WorkflowId = WorkflowId([u8::MAX; 16]);

/// The most partitions that a store can have: as many as an id can name.
pub const MAX_PARTITIONS: u16 = 1 << PARTITION_BITS;

/// Names a workflow: 48 bits of milliseconds, 10 bits of microseconds within it, 60 random bits, 10
/// bits of partition. The last 16 of the random bits say whether the store keeps its state as one
/// value (see `codec::compact_state`). As 26 characters or as 16 bytes it sorts by the time of
/// creation. The partition comes last, so that workflows of one moment come from all partitions
/// when they are listed: a page that takes a few from each is then enough.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct WorkflowId([u8; 16]);

/// A part of the store. A workflow and everything that belongs to it are in one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partition(pub u16);

/// The position of a job in its workflow, in the order of the definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JobIndex(pub u32);

/// A text is not the id of a workflow.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "'{text}' is not a workflow id: expected 26 characters, digits and letters except I, L, O and U"
)]
pub struct InvalidId {
    /// What was given, cut to 40 characters.
    pub text: String,
}

/// The first characters of ids. Ids sort by time, so ids with the same beginning are next to each
/// other in every index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdPrefix {
    first: WorkflowId,
    end: WorkflowId,
}

/// A text is not the beginning of an id.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "expected {SHORTEST_PREFIX} to {TEXT_LENGTH} characters of an id, digits and letters except I, L, O and U"
)]
pub struct InvalidPrefix;

impl IdPrefix {
    /// The lowest id with this beginning.
    pub(crate) fn first(self) -> WorkflowId {
        self.first
    }

    /// An id after all ids with this beginning.
    pub(crate) fn end(self) -> WorkflowId {
        self.end
    }
}

impl FromStr for IdPrefix {
    type Err = InvalidPrefix;

    fn from_str(text: &str) -> Result<Self, InvalidPrefix> {
        let is_beginning = |text: &str| text.bytes().all(|character| digit(character).is_some());
        if !(SHORTEST_PREFIX..=TEXT_LENGTH).contains(&text.len()) || !is_beginning(text) {
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
            // The first character of an id is at most 7, so no id begins like this: the range is
            // empty.
            _ => Self {
                first: LAST,
                end: LAST,
            },
        })
    }
}

impl WorkflowId {
    /// An id for a workflow created at `now`. `random` should be random; 60 bits of it are used.
    #[must_use]
    pub fn new(now: Timestamp, partition: Partition, random: u128) -> Self {
        let random = (random & ((1 << RANDOM_BITS) - 1)) << PARTITION_BITS;
        let partition = u128::from(partition.0 % MAX_PARTITIONS);
        Self((moment(now) | random | partition).to_be_bytes())
    }

    /// An id for a workflow created at `now`, which says whether it is small.
    #[must_use]
    pub fn of_size(now: Timestamp, partition: Partition, is_small: bool) -> Self {
        let random = fastrand::u128(..) & !SMALL_MASK;
        // Whatever the other bits, with the last one turned it is not the mark.
        let mark = if is_small {
            SMALL
        } else {
            fastrand::u128(..) & SMALL_MASK & !1
        };
        Self::new(now, partition, random | mark)
    }

    /// Whether the store has its state as one value.
    pub(crate) fn is_small(self) -> bool {
        u128::from_be_bytes(self.0) >> PARTITION_BITS & SMALL_MASK == SMALL
    }

    /// The id as bytes, which sort by time.
    #[must_use]
    pub const fn bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// The id that [`WorkflowId::bytes`] gave.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Where it is stored.
    #[must_use]
    pub fn partition(&self) -> Partition {
        Partition((u128::from_be_bytes(self.0) % u128::from(MAX_PARTITIONS)) as u16)
    }

    /// When it was made.
    #[must_use]
    pub fn created_at(&self) -> Timestamp {
        let moment = u128::from_be_bytes(self.0) >> (PARTITION_BITS + RANDOM_BITS);
        let millis = moment >> MICROS_BITS;
        let micros = moment % (1 << MICROS_BITS);
        Timestamp::from_micros((millis * 1_000 + micros) as u64)
    }

    /// Its 26 characters.
    fn text(self) -> [u8; TEXT_LENGTH] {
        let number = u128::from_be_bytes(self.0);
        let mut text = [0; TEXT_LENGTH];
        for (part, digits) in text.rchunks_mut(PART).enumerate() {
            let mut rest = (number >> (5 * PART * part)) as u64;
            for digit in digits.iter_mut().rev() {
                *digit = ALPHABET[rest as usize % ALPHABET.len()];
                rest >>= 5;
            }
        }
        text
    }

    /// Adds its 26 characters to a text.
    pub(crate) fn push_to(self, text: &mut String) {
        text.push_str(std::str::from_utf8(&self.text()).expect("the alphabet is ASCII"));
    }

    /// The id right after it in the order of ids.
    pub(crate) fn next(self) -> Self {
        Self(u128::from_be_bytes(self.0).saturating_add(1).to_be_bytes())
    }

    /// The lowest id that can be created at `now` or later, in any partition.
    #[must_use]
    pub fn first_at(now: Timestamp) -> Self {
        Self(moment(now).to_be_bytes())
    }
}

/// What each character of an id stands for; [`NO_DIGIT`] for other bytes.
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

/// What a character of an id stands for.
fn digit(character: u8) -> Option<u64> {
    let digit = DIGITS[usize::from(character)];
    (digit != NO_DIGIT).then_some(digit.into())
}

/// The part of an id that comes from the time.
fn moment(now: Timestamp) -> u128 {
    let millis = u128::from(now.millis());
    let micros = u128::from(now.micros() % 1_000);
    (millis << MICROS_BITS | micros) << (PARTITION_BITS + RANDOM_BITS)
}

impl Partition {
    /// The one of so many in which something of this name is.
    pub(crate) fn of_text(text: &str, partitions: u16) -> Self {
        Self((fnv(text.as_bytes()) % u64::from(partitions)) as u16)
    }
}

/// FNV-1a. It decides where something is stored, so it must be the same in all versions.
fn fnv(bytes: &[u8]) -> u64 {
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
        for part in text.as_bytes().chunks(PART) {
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
