//! States and graphs as bytes of the store.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::store::error::StoreError;

/// The bytes that [`decode`] reads back.
pub(crate) fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    postcard::to_allocvec(value).expect("memory is the only thing that encoding can lack")
}

/// Reads what [`encode`] wrote. `what` names it in the error.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8], what: impl FnOnce() -> String) -> Result<T, StoreError> {
    postcard::from_bytes(bytes).map_err(|error| StoreError::Corrupt { what: what(), reason: error.to_string() })
}
