//! Errors of store calls.

pub use crate::codec::error::{SCHEMA_VERSION, StoreError};
