//! How moments, results and registers are kept as numbers in columns.

use crate::record::change::ResultField;
use crate::store::query::Register;
use crate::time::Timestamp;

/// The moment that [`micros`] wrote.
pub(super) fn moment(micros: i64) -> Timestamp {
    Timestamp::from_micros(u64::try_from(micros).unwrap_or_default())
}

/// A moment as SQLite's integers can hold it; those after the year 294,246 are one.
pub(super) fn micros(at: Timestamp) -> i64 {
    i64::try_from(at.micros()).unwrap_or(i64::MAX)
}

/// A place among results as a number: 512 for each job, of which the output is the first.
pub(super) fn field_number(field: ResultField) -> i64 {
    match field {
        ResultField::Output(job) => i64::from(job.0) << 9,
        ResultField::Error(job, slot) => (i64::from(job.0) << 9) + 1 + i64::from(slot),
    }
}

pub(super) fn register_number(register: Register) -> i64 {
    match register {
        Register::Queues => 0,
        Register::Names => 1,
    }
}
