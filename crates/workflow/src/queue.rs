//! TODO: say what these modules are for.

pub(crate) mod blocked_limits;
pub(crate) mod cache;
pub(crate) mod contention;
pub(crate) mod dequeue;
pub(crate) mod partitions;
mod quarantine;
mod queue;
pub(crate) mod ready_jobs;
pub(crate) mod refill;
mod scheduler;
pub(crate) mod waiting;
