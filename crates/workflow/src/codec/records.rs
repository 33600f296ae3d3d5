//! States and graphs as bytes of the store.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{CodecError, Format, Progress, RecordKind, StoreError, downgraded, upgraded};
use crate::graph::Graph;
use crate::model::workflow_state::Job;
use crate::model::{AttemptError, Label, Meta};

/// Initial capacity in bytes of an encoded record: most records are shorter, so their bytes are
/// allocated once.
const TYPICAL_BYTES: usize = 160;

/// A type that a store keeps, encoded after a mark with its format.
pub(crate) trait Record: Serialize + DeserializeOwned {
    const KIND: RecordKind;
}

macro_rules! records {
    ($($kind:ident),*) => {
        $(impl Record for $kind {
            const KIND: RecordKind = RecordKind::$kind;
        })*
    };
}

records!(AttemptError, Graph, Job, Label, Meta, Progress);

/// Appends an encoded value to `bytes`.
pub(crate) fn append<T: Serialize + ?Sized>(bytes: Vec<u8>, value: &T) -> Vec<u8> {
    postcard::to_extend(value, bytes).expect("memory is the only thing that encoding can lack")
}

/// Encodes a record for [`decode`].
pub(crate) fn encode<T: Record>(record: &T, format: Format) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(TYPICAL_BYTES);
    bytes.extend_from_slice(&Format::LATEST.mark());
    downgraded(T::KIND, append(bytes, record), format)
}

/// Decodes a record of any known format. Bytes after the record are ignored. `what` describes the
/// record in the error.
pub(crate) fn decode<T: Record>(
    bytes: &[u8],
    what: impl FnOnce() -> String,
) -> Result<T, StoreError> {
    let read = || -> Result<T, CodecError> {
        let (_, record) = upgraded(T::KIND, bytes)?;
        Ok(postcard::from_bytes(&record)?)
    };
    read().map_err(|error| unreadable(error, what))
}

pub(super) fn unreadable(
    error: impl Into<CodecError>,
    what: impl FnOnce() -> String,
) -> StoreError {
    StoreError::corrupt(what(), error.into().to_string())
}
