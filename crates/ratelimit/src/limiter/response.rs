//! Responses: the answer to a request, and the facts that the server counts.

use std::sync::Arc;

use thiserror::Error;

use crate::config::Configuration;
use crate::model::Unit;
use crate::overrides::Overrides;
use crate::store::StoreError;
use crate::tree::StatsKey;

/// Whether a descriptor, or the whole request, may pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// Pass.
    Ok,
    /// Refuse.
    OverLimit,
}

/// Reason why a request has no answer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Error {
    /// The request names no domain.
    #[error("rate limit domain must not be empty")]
    EmptyDomain,
    /// The request has no descriptor.
    #[error("rate limit descriptor list must not be empty")]
    NoDescriptors,
    /// No configuration was loaded yet.
    #[error("no rate limit configuration loaded")]
    NoConfiguration,
    /// The override of a descriptor has a unit that is not one of 1 to 7.
    #[error(
        "descriptor {descriptor}: the limit override has no valid unit: {unit} is not one of 1 to 7"
    )]
    InvalidOverride {
        /// The descriptor's index.
        descriptor: usize,
        /// The unit's wire number.
        unit: i32,
    },
    /// The values of a request are too long to match them with all patterns of its domain.
    #[error(
        "descriptor {descriptor}: the values up to here are too long for the number of patterns (*) in the limits of this domain"
    )]
    LongValues {
        /// The index of the descriptor at which the bound was reached.
        descriptor: usize,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Facts of one request, for the server's counters.
#[derive(Debug, Default)]
pub struct Facts {
    /// One delta per descriptor whose hits are counted.
    pub tallies: Vec<LimitDelta>,
    /// Descriptors whose domain is not configured.
    pub domain_not_found: u64,
    /// Whether the overall code was OVER_LIMIT and global shadow mode made it OK.
    pub global_shadow_mode: bool,
    /// The configuration that the slots of the deltas belong to. It lives until the facts are
    /// counted.
    pub(crate) active_config: Option<CoreActiveConfig>,
}

/// The configuration and its overrides. One load gives both.
#[derive(Debug)]
pub(crate) struct ActiveConfig {
    pub(crate) configuration: Arc<Configuration>,
    /// `None` if there are no overrides, so that a check tests only this.
    pub(crate) overrides: Option<Arc<Overrides>>,
}

/// The active configuration of one core. Only that core writes the reference count of the `Arc`.
pub(crate) type CoreActiveConfig = Arc<ActiveConfig>;

/// Additions to the counters of one limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitDelta {
    /// The limit's name in metrics.
    pub stats_key: StatsKey,
    /// Requested hits.
    pub total_hits: u64,
    /// Hits over the limit.
    pub over_limit: u64,
    /// Hits above the near-limit ratio.
    pub near_limit: u64,
    /// Hits of requests that passed.
    pub within_limit: u64,
    /// Hits refused without a call to the store.
    pub over_limit_with_local_cache: u64,
    /// Hits over the limit that shadow mode let pass.
    pub shadow_mode: u64,
    /// Hits refunded.
    pub total_negative_hits: u64,
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq)]
pub struct Response {
    /// The overall code.
    pub code: Code,
    /// One per descriptor, in the request's order.
    pub statuses: Vec<Status>,
    /// `None` when response headers are off or no descriptor has a limit.
    pub headers: Option<LimitHeaders>,
    /// The content of the response's Struct. `None` when dynamic metadata is off.
    pub dynamic_metadata: Option<serde_json::Map<String, serde_json::Value>>,
}

/// The answer for one descriptor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// Whether this descriptor may pass.
    pub code: Code,
    /// The limit that applied. `None` if there is no limit, or if it is unlimited.
    pub limit: Option<CurrentLimit>,
    /// Hits left in the window; 4,294,967,295 when unlimited.
    pub remaining: u32,
    /// Whole seconds to the end of the window, at least 1. `None` when there is no limit.
    pub seconds_until_reset: Option<u32>,
}

/// A limit in the answer to the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CurrentLimit {
    /// Hits allowed per unit.
    pub requests_per_unit: u32,
    /// The window.
    pub unit: Unit,
    /// The limit's configured name; empty when it has none.
    pub name: String,
}

/// Values of the three response headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitHeaders {
    /// Hits allowed per unit.
    pub limit: u32,
    /// Hits left.
    pub remaining: u32,
    /// Seconds to the end of the window.
    pub reset: u32,
}
