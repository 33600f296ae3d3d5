//! Format numbers. The schema of a store names the format that is written to it; each record begins
//! with the number of its own format.

#[cfg(feature = "test-util")]
mod test_util;

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::CodecError;

/// Formats of earlier releases, oldest first. All can be read, written to stores that still have
/// them, and migrated.
#[cfg(not(feature = "test-util"))]
pub const UPGRADES: &[Upgrade] = &[];
/// The made-up format 0: no release has written an earlier format yet.
#[cfg(feature = "test-util")]
pub const UPGRADES: &[Upgrade] = &[test_util::FORMAT_0];

/// How the records of an earlier format differ from those of the next format.
#[derive(Debug)]
pub struct Upgrade {
    /// The earlier format.
    pub from: Format,
    /// Rewrites a record, without its mark, in the next format. In the meta of a small workflow,
    /// the bytes after the meta are its label and jobs.
    pub rewrite: fn(RecordKind, &[u8]) -> Result<Vec<u8>, postcard::Error>,
    /// Rewrites a record of the next format, without its mark, in the earlier format. Servers write
    /// the earlier format until the store is migrated.
    pub rewrite_back: fn(RecordKind, &[u8]) -> Vec<u8>,
}

/// The type of a record. The bytes of a record do not contain it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordKind {
    /// The meta of a workflow, or the whole state of a small one, which begins with the meta.
    Meta,
    /// Name and tags of a workflow.
    Label,
    /// The graph of a workflow.
    Graph,
    /// The state of a job.
    Job,
    /// The error of an attempt.
    AttemptError,
    /// The progress that a worker reported.
    Progress,
}

/// The format of a store or of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Format(u8);

impl Format {
    /// The format of new stores.
    pub const LATEST: Self = Self(1);

    /// The format of a store with this schema version. `None` if this program does not know the
    /// format.
    #[must_use]
    pub fn from_schema(version: u32) -> Option<Self> {
        let format = Self(u8::try_from(version).ok()?);
        let is_known = format == Self::LATEST || UPGRADES.iter().any(|known| known.from == format);
        is_known.then_some(format)
    }

    /// The schema version of a store in this format.
    #[must_use]
    pub const fn schema(self) -> u32 {
        self.0 as u32
    }

    /// The first bytes of a record.
    pub(super) fn mark(self) -> [u8; 2] {
        [0x80 | self.0, 0]
    }

    /// The format of a record, and the bytes after its mark.
    pub(crate) fn split_mark(record: &[u8]) -> Result<(Self, &[u8]), CodecError> {
        let (version, rest) = match record {
            [mark, 0, rest @ ..] if *mark >= 0x80 => (u32::from(mark & 0x7f), rest),
            _ => return Err(CodecError::NoFormat),
        };
        let format = Self::from_schema(version).ok_or(CodecError::Format(version))?;
        Ok((format, rest))
    }
}

/// The format of a record, and the record without its mark, rewritten in the latest format.
pub(super) fn upgraded(
    kind: RecordKind,
    record: &[u8],
) -> Result<(Format, Cow<'_, [u8]>), CodecError> {
    let (format, rest) = Format::split_mark(record)?;
    let mut rest = Cow::Borrowed(rest);
    for upgrade in UPGRADES.iter().filter(|upgrade| upgrade.from >= format) {
        rest = (upgrade.rewrite)(kind, &rest)?.into();
    }
    Ok((format, rest))
}

/// Rewrites a record of the latest format in this one.
pub(super) fn downgraded(kind: RecordKind, record: Vec<u8>, format: Format) -> Vec<u8> {
    let earlier = UPGRADES.iter().filter(|upgrade| upgrade.from >= format);
    earlier.rev().fold(record, |record, upgrade| {
        let (_, rest) = record.split_at(upgrade.from.mark().len());
        let mut earlier = upgrade.from.mark().to_vec();
        earlier.extend((upgrade.rewrite_back)(kind, rest));
        earlier
    })
}

/// The format that a store is written in. Clones share it, so a migration changes it for all users
/// of the open store.
#[derive(Debug, Clone)]
pub(crate) struct Schema(Arc<SchemaVersions>);

#[derive(Debug)]
struct SchemaVersions {
    current: AtomicU32,
    /// The version from which the store is being migrated, or [`NOT_MIGRATING`].
    migrates_from: AtomicU32,
}

const NOT_MIGRATING: u32 = u32::MAX;

impl Schema {
    /// The schema of a store with this format. `from` is the version from which it is being
    /// migrated.
    pub(crate) fn new(format: Format, from: Option<u32>) -> Self {
        Self(Arc::new(SchemaVersions {
            current: format.schema().into(),
            migrates_from: from.unwrap_or(NOT_MIGRATING).into(),
        }))
    }

    /// The schema version from which the store is being migrated, or its current version.
    pub(crate) fn origin(&self) -> u32 {
        match self.0.migrates_from.load(Relaxed) {
            NOT_MIGRATING => self.format().schema(),
            from => from,
        }
    }

    pub(crate) fn set(&self, format: Format, from: Option<u32>) {
        self.0
            .migrates_from
            .store(from.unwrap_or(NOT_MIGRATING), Relaxed);
        self.0.current.store(format.schema(), Relaxed);
    }

    pub(crate) fn format(&self) -> Format {
        Format::from_schema(self.0.current.load(Relaxed)).expect("it was the schema of a format")
    }

    /// Whether a migration has begun and not ended.
    pub(crate) fn is_migrating(&self) -> bool {
        self.0.migrates_from.load(Relaxed) != NOT_MIGRATING
    }
}
