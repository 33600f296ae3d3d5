//! State that requests share, and the context of one request.

pub(crate) mod app_state;
pub(crate) mod config_status;
pub(crate) mod error_log;
pub(crate) mod feeds;
pub(crate) mod history;
pub(crate) mod metrics;
pub(crate) mod probe_cache;
pub(crate) mod rate_limits;
pub(crate) mod server_hooks;
pub(crate) mod store_gate;
pub(crate) mod traces;
pub(crate) mod worker_registry;
