//! TODO: say what these modules are for.

pub(crate) mod fair_lock;
pub(crate) mod incomplete;
pub(crate) mod job;
pub(crate) mod workflow;
pub(crate) mod workflow_limits;
