//! TODO: say what these modules are for.

pub(crate) mod config_status;
pub(crate) mod error_log;
pub(crate) mod feeds;
pub(crate) mod history;
pub(crate) mod metrics;
pub(crate) mod store_gate;
pub(crate) mod traces;
pub(crate) mod worker_registry;
