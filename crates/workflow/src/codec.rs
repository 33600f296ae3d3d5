//! Encoded forms of a workflow: guarded changes, rows of sorted sets, and states as bytes.

pub mod change;
pub(crate) mod compact_state;
pub(crate) mod due;
pub(crate) mod format;
pub(crate) mod lease;
pub(crate) mod note;
pub(crate) mod policy_row;
pub(crate) mod record;
pub mod rows;
