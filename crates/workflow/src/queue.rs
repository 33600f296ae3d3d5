//! The ready jobs that this server knows, by queue, and the workers that wait for them.

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
