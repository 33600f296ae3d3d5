//! Limits of jobs: permits and units are acquired before jobs are claimed, and refunded if that
//! fails.
//!
//! Charges come before leases. So a crash in between wastes units, and a limit is never exceeded.

pub(in crate::engine) mod charge;
mod lookahead;
mod permits;
pub(crate) mod status;
pub(in crate::engine) mod throttle;
mod unblock;
pub(crate) mod unit_counter;
pub(crate) mod unstarted;
