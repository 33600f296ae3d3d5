//! What operators see: the banner, health, logs, metrics and the debug pages.

pub(crate) mod banner;
pub(crate) mod counting;
pub(crate) mod debug;
pub(crate) mod decisions;
pub(crate) mod give_back;
pub(crate) mod health;
pub(crate) mod logging;
pub(crate) mod metrics;
pub(crate) mod notify;
pub(crate) mod profiles;
pub(crate) mod statsd;
pub(crate) mod traces;
