//! Figures: answers and times of calls, values over several turns, and the tables that show them.

mod answers;
mod calls;
mod duration;
mod file;
mod spread;
mod table;

pub(crate) use answers::{Answer, AnswerCounts, grpc_code};
pub(crate) use calls::{Calls, Latency};
pub(crate) use duration::duration;
pub(crate) use file::{read_tables, write_tables};
pub(crate) use spread::percentile;
pub(crate) use table::{RowFigures, Table};

use std::time::Duration;

/// Microseconds with their fraction.
pub(crate) fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1_000.0
}

/// Milliseconds with their fraction.
pub(crate) fn millis(time: Duration) -> f64 {
    micros(time) / 1_000.0
}

/// Microseconds of processor time for each of `count`.
pub(crate) fn micros_each(time: Duration, count: u64) -> f64 {
    micros(time) / count.max(1) as f64
}

pub(crate) fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
