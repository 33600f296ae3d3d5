//! State and functions that the embedding server provides.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tidegate_workflow::Timestamp;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::config_status::{LimitUse, Loads};
use super::history::{GatewayTotals, History};
use super::probe_cache::Availability;
use super::rate_limits::RateLimits;
use super::traces::Traces;

/// Returns the counts of the limits with some slots, in their order.
type LimitUses = dyn Fn(&[u32]) -> Vec<LimitUse> + Send + Sync;

/// Returns the latest time at which the server accepts calls, if it is about to end.
type DrainsUntil = dyn Fn() -> Option<Timestamp> + Send + Sync;

/// Locations of the stores for people, without credentials.
#[derive(Debug, Default)]
pub struct StoreLocations {
    /// Location of the counters of rate limits.
    pub counters: String,
    /// Location of the workflows.
    pub workflows: String,
}

/// State and functions that the embedding server provides to the API.
#[derive(Clone)]
pub struct ServerHooks {
    /// Version of the server.
    pub version: &'static str,
    /// Clock of the store of workflows.
    pub clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    /// Moves that clock ahead. Returns whether it could. `None` if there is no test clock.
    pub test_clock: Option<Arc<dyn Fn(Duration) -> bool + Send + Sync>>,
    /// Whether the server as a whole is healthy.
    pub serving: Arc<dyn Fn() -> bool + Send + Sync>,
    /// Latest time at which the server accepts calls, if it is about to end.
    pub drains_until: Arc<DrainsUntil>,
    /// Locations of the stores.
    pub stores: Arc<StoreLocations>,
    /// Whether the store of counters works, by the latest rate limit calls.
    pub counter_store_health: Arc<dyn Fn() -> Availability + Send + Sync>,
    /// Counts of the server's gateway.
    pub totals: Arc<dyn Fn() -> GatewayTotals + Send + Sync>,
    /// History of the last day.
    pub history: Arc<History>,
    /// Rate limits of the server.
    pub limits: RateLimits,
    /// Loads of the configuration of these limits, with their results.
    pub loads: Arc<dyn Fn() -> Arc<Loads> + Send + Sync>,
    /// Counts of the limits with these slots, of a configuration that is held.
    pub limit_uses: Arc<LimitUses>,
    /// Hooks for traces.
    pub traces: Traces,
    /// Cancelled when the server drains: streams and waits end.
    pub drain: CancellationToken,
    /// Tracker of the tasks that outlive their request.
    pub tasks: TaskTracker,
}

impl fmt::Debug for ServerHooks {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Host").finish_non_exhaustive()
    }
}

#[cfg(test)]
impl ServerHooks {
    /// Hooks of a server for tests.
    pub(crate) fn for_test(now: Timestamp) -> Self {
        Self {
            version: "test",
            clock: Arc::new(move || now),
            test_clock: None,
            serving: Arc::new(|| true),
            drains_until: Arc::new(|| None),
            stores: Arc::default(),
            counter_store_health: Arc::new(|| Availability::Up),
            totals: Arc::new(GatewayTotals::default),
            history: Arc::default(),
            limits: RateLimits::in_memory(),
            loads: Arc::new(Arc::default),
            limit_uses: Arc::new(|slots| vec![LimitUse::default(); slots.len()]),
            traces: Traces {
                caller: |_| None,
                exporter: None,
            },
            drain: CancellationToken::new(),
            tasks: TaskTracker::new(),
        }
    }
}
