//! Encoded forms of a workflow: guarded changes, rows of sorted sets, and states as bytes.

pub mod change;
pub(crate) mod compact_state;
pub(crate) mod error;
pub(crate) mod format;
mod graph_record;
pub(crate) mod job_note;
pub(crate) mod policy_row;
pub(crate) mod records;
pub mod rows;
pub(crate) mod time_row;
