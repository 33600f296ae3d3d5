//! Why a call of a store failed.

use thiserror::Error;

use crate::codec::format::Format;

/// The version of the layout of new stores. Older ones are read and written as they are.
pub const SCHEMA_VERSION: u32 = Format::LATEST.schema();

/// Why a call of a store failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StoreError {
    /// Nothing was written. Trying again later may succeed.
    #[error("the store is unavailable: {reason}")]
    Unavailable {
        /// The cause, in the store's words.
        reason: String,
    },
    /// It may or may not have been written.
    #[error("the store did not answer: {reason}")]
    Unknown {
        /// What is known.
        reason: String,
    },
    /// The store refused the middle of a write. No state was changed by it, yet rows may be missing, or be there and should not, until they
    /// are written again.
    #[error("the store does not do all that is asked of it, and refused a write: {reason}")]
    Torn {
        /// The cause, in the store's words.
        reason: String,
    },
    /// What is stored cannot be read.
    #[error("{what} cannot be read: {reason}")]
    Corrupt {
        /// Which entry.
        what: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The store was made by another version.
    #[error(
        "the store has schema version {found}, this program knows 1 to {SCHEMA_VERSION}: {advice}"
    )]
    Schema {
        /// The version found.
        found: u32,
        /// What to do.
        advice: &'static str,
    },
}

impl StoreError {
    /// The store has another schema than this program's.
    pub(crate) fn other_schema(found: u32) -> Self {
        Self::Schema {
            found,
            advice: "run the version of tidegate that made it, or a later one",
        }
    }
}
