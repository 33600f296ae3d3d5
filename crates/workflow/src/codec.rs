//! Encoded forms of a workflow: guarded changes, rows of sorted sets, and states as bytes.

pub mod change;
pub(crate) mod compact_state;
mod error;
mod format;
mod graph_record;
mod job_note;
pub(crate) mod policy_row;
mod records;
pub mod rows;
mod time_row;

pub(crate) use change::{
    Applied, Change, CreationRecord, Delete, NewerState, Put, ResultField, RowChange, RowTimes,
    RowTiming, Stamp, Stored, StoredState, TimerMove, TrailEntry, Write,
};
pub(crate) use compact_state::{decode_compact, encode_compact, is_small};
pub use error::{SCHEMA_VERSION, StoreError};
pub(crate) use format::Schema;
pub use format::{Format, RecordKind, UPGRADES, Upgrade};
pub use job_note::{LogLine, Progress};
pub(crate) use job_note::{decode_log_lines, encode_log_item};
pub(crate) use policy_row::{PolicyRow, decode_policies, limits_row, weights_row};
pub(crate) use records::{decode, encode};
pub(crate) use rows::{
    ReadyJob, ReadyKey, ReadyRow, Row, Section, is_limited, lane_end, lane_prefix, lane_rows,
    permanent_row, queue_end, queue_rows, ready_row, ready_rows, status_rows, workflow_in_row,
};
pub use time_row::{due_row, read_due_row};

use error::CodecError;
use format::{downgraded, upgraded};
use records::{Record, append, unreadable};
