//! Errors of store calls, and of reading what a store keeps.

use thiserror::Error;

use super::Format;

/// The schema version of new stores. A store with an earlier version is read and written in its own
/// format.
pub const SCHEMA_VERSION: u32 = Format::LATEST.schema();

/// The reason why a store call failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StoreError {
    /// Nothing was written. A retry may succeed.
    #[error("the store is unavailable: {reason}")]
    Unavailable {
        /// The cause, in the store's words.
        reason: String,
    },
    /// The write may or may not have been applied.
    #[error("the store did not answer: {reason}")]
    Unknown {
        /// The cause, as far as it is known.
        reason: String,
    },
    /// Redis refused a command in the middle of a write. No state was changed, but rows may be
    /// missing or superfluous until the workflow is written again.
    #[error("the store does not do all that is asked of it, and refused a write: {reason}")]
    PartialWrite {
        /// The cause, in the store's words.
        reason: String,
    },
    /// A stored record cannot be decoded.
    #[error("{what} cannot be read: {reason}")]
    Corrupt {
        /// The name of the record.
        what: String,
        /// The reason why it cannot be decoded.
        reason: String,
    },
    /// Another version of this program created the store.
    #[error(
        "the store has schema version {found}, this program knows 1 to {SCHEMA_VERSION}: {advice}"
    )]
    Schema {
        /// The schema version of the store.
        found: u32,
        /// Advice for the operator.
        advice: &'static str,
    },
}

impl StoreError {
    pub(crate) fn unavailable(reason: impl Into<String>) -> Self {
        Self::Unavailable {
            reason: reason.into(),
        }
    }

    pub(crate) fn unknown(reason: impl Into<String>) -> Self {
        Self::Unknown {
            reason: reason.into(),
        }
    }

    pub(crate) fn corrupt(what: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Corrupt {
            what: what.into(),
            reason: reason.into(),
        }
    }

    /// The error for a schema version that this program does not know.
    pub(crate) fn other_schema(found: u32) -> Self {
        Self::Schema {
            found,
            advice: "run the version of tidegate that made it, or a later one",
        }
    }
}

/// The reason why a record cannot be decoded.
#[derive(Debug, Error)]
pub(crate) enum CodecError {
    #[error("it has format {0}, which a later version of tidegate writes")]
    Format(u32),
    #[error("it does not begin with a format")]
    NoFormat,
    #[error(transparent)]
    Bytes(#[from] postcard::Error),
}
