//! Values that all layers use: ids, times, JSON texts, and the states of workflows and jobs.

pub(crate) mod id;
mod job;
pub(crate) mod json;
pub(crate) mod lease_ref;
pub(crate) mod time;
pub(crate) mod trace;
mod worker;
pub(crate) mod workflow_state;
