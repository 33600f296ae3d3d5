//! TODO: say what these modules are for.

pub(crate) mod id;
mod job;
pub(crate) mod json;
pub(crate) mod lease_ref;
pub(crate) mod time;
mod worker;
pub(crate) mod workflow_state;
