//! How records, rows and keys are written. A store has one format, which its schema names; this program reads all of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::codec::Unreadable;

/// The format of what a store holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Format {
    /// Records without a format, ready rows without the key of a limit and with positions of 16 bits.
    First = 1,
    /// Records that begin with their format; ready rows with an empty text before the position, which has 32 bits.
    Second = 2,
    /// As the second, and the state of a small workflow is one value.
    Third = 3,
    /// As the third, and jobs may have limits: graphs have them, and ready rows have the handler and the limit key.
    Fourth = 4,
}

impl Format {
    /// What new stores are written in.
    pub const LATEST: Self = Self::Fourth;

    /// The format of a store with this schema version. None: this program does not know it.
    #[must_use]
    pub const fn of_schema(version: u32) -> Option<Self> {
        match version {
            1 => Some(Self::First),
            2 => Some(Self::Second),
            3 => Some(Self::Third),
            4 => Some(Self::Fourth),
            _ => None,
        }
    }

    /// The schema version of a store that is written in this format.
    #[must_use]
    pub const fn schema(self) -> u32 {
        self as u32
    }

    /// The most jobs of a workflow whose positions fit into ready rows.
    #[must_use]
    pub const fn most_jobs(self) -> usize {
        match self {
            Self::First => 1 << 16,
            Self::Second | Self::Third | Self::Fourth => usize::MAX,
        }
    }

    /// Whether jobs may have limits.
    #[must_use]
    pub const fn has_limits(self) -> bool {
        matches!(self, Self::Fourth)
    }

    /// The beginning of a record. Every record of the first format begins with a number in as few bytes as possible, the low seven bits
    /// first. A zero after a byte that announces more is never among them, so this marks all later formats.
    pub(super) fn mark(self) -> Option<[u8; 2]> {
        (self > Self::First).then_some([0x80 | self as u8, 0])
    }

    /// The format of a record, and the rest of it.
    pub(crate) fn of_record(record: &[u8]) -> Result<(Self, &[u8]), Unreadable> {
        match record {
            [mark, 0, rest @ ..] if *mark >= 0x80 => {
                let version = u32::from(mark & 0x7f);
                let format = Self::of_schema(version).filter(|format| *format > Self::First);
                Ok((format.ok_or(Unreadable::Format(version))?, rest))
            }
            _ => Ok((Self::First, record)),
        }
    }
}

/// How a store is written now. Clones are the same: a migration changes it for all that have the store open.
#[derive(Debug, Clone)]
pub(crate) struct Schema(Arc<[AtomicU32; 2]>);

impl Schema {
    /// A store of a format, and what it is being migrated from.
    pub(crate) fn new(format: Format, from: Option<u32>) -> Self {
        Self(Arc::new([
            format.schema().into(),
            from.unwrap_or_default().into(),
        ]))
    }

    /// What it is being migrated from; the format itself if it is not migrated.
    pub(crate) fn origin(&self) -> Format {
        Format::of_schema(self.0[1].load(Relaxed)).unwrap_or_else(|| self.format())
    }

    pub(crate) fn set(&self, format: Format, from: Option<u32>) {
        // What it comes from first: whoever sees the new format has to remove rows of the old one.
        self.0[1].store(from.unwrap_or_default(), Relaxed);
        self.0[0].store(format.schema(), Relaxed);
    }

    pub(crate) fn format(&self) -> Format {
        Format::of_schema(self.0[0].load(Relaxed)).expect("it was the schema of a format")
    }

    /// Whether a migration has begun and not ended.
    pub(crate) fn is_migrating(&self) -> bool {
        self.0[1].load(Relaxed) != 0
    }

    /// The formats of all ready rows that may be there, of those that differ, the latest last. More than one: servers that have noticed a
    /// migration write other rows than those that have not, and this one may be either.
    pub(crate) fn formats_of_rows(&self) -> &'static [Format] {
        match self.origin() {
            Format::First => &[Format::First, Format::Second, Format::Fourth],
            Format::Second | Format::Third => &[Format::Second, Format::Fourth],
            Format::Fourth => &[Format::Fourth],
        }
    }
}
