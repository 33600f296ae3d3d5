//! The values that all other layers use: ids, times, JSON, and the states of workflows and jobs.

pub(crate) mod id;
mod job;
pub(crate) mod json;
pub(crate) mod lease_ref;
pub(crate) mod time;
mod worker;
pub(crate) mod workflow_state;
