//! Figures: how many turns are measured, what they showed, and how that is shown.

mod latency;
mod results;
mod sheet;
mod spread;
mod tally;
mod turns;

pub(crate) use latency::Latency;
pub(crate) use results::{Results, Table, finish, read_json, write_json};
pub(crate) use sheet::Sheet;
pub(crate) use spread::{Spread, spread};
pub(crate) use tally::{Answer, Tally, grpc_code, micros, per_call};
pub(crate) use turns::{Turns, duration};
