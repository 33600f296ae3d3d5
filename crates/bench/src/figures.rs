//! Figures: how many turns are measured, what they showed, and how that is shown.

mod file;
mod latency;
mod sheet;
mod spread;
mod tally;
mod turns;

pub(crate) use file::write_json;
pub(crate) use latency::Latency;
pub(crate) use sheet::Sheet;
pub(crate) use spread::Spread;
pub(crate) use tally::{Answer, Tally, micros, per_call};
pub(crate) use turns::{Turns, duration};
