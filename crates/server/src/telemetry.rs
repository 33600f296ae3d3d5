//! Information for operators: logs, metrics, traces and debug pages.

pub(crate) mod counter_store_health;
pub(crate) mod debug;
pub(crate) mod decisions;
pub(crate) mod logging;
pub(crate) mod metrics;
pub(crate) mod profiles;
pub(crate) mod purge_allocator;
pub(crate) mod statsd;
pub(crate) mod traces;
