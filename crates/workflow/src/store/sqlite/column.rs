//! Times, results and registers as numbers in columns.

use crate::codec::ResultField;
use crate::model::Timestamp;
use crate::store::Register;

/// The time that [`micros`] converted.
pub(super) fn timestamp(micros: i64) -> Timestamp {
    Timestamp::from_micros(u64::try_from(micros).unwrap_or_default())
}

/// A time as an integer of SQLite. All times after the year 294,246 are the same.
pub(super) fn micros(at: Timestamp) -> i64 {
    i64::try_from(at.micros()).unwrap_or(i64::MAX)
}

/// The number of a result. Each job has 512 numbers: the first is its output, then come 256 errors,
/// and then the notes of its workers.
pub(super) fn field_number(field: ResultField) -> i64 {
    match field {
        ResultField::Output(job) => i64::from(job.0) << 9,
        ResultField::Error(job, slot) => (i64::from(job.0) << 9) + 1 + i64::from(slot),
        ResultField::Progress(job) => (i64::from(job.0) << 9) + 300,
        ResultField::Log(job) => (i64::from(job.0) << 9) + 301,
        ResultField::LogPiece(job, slot) => (i64::from(job.0) << 9) + 302 + i64::from(slot),
    }
}

pub(super) fn register_number(register: Register) -> i64 {
    match register {
        Register::Queues => 0,
        Register::Names => 1,
    }
}
