//! Shard of metrics: the counters of one core.

pub(crate) mod shared;
mod slots;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use tidegate_ratelimit::{Facts, StatsKey};

use self::shared::lock;
use self::slots::Slots;
use super::dynamic_series::DynamicSeries;
use super::method_counts::{KeepTimes, METHODS, Method, SharedMethodCounts};
use crate::settings::{self, ResponseTime};
use crate::telemetry::counter_store_health::CounterStoreHealth;

/// Cause of a failed call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallFailure {
    /// The store failed.
    Store,
    /// The request is invalid, or no configuration is loaded.
    Service,
}

/// Part of a request that exceeded its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExcessKind {
    Descriptors,
    Entries,
}

/// Counters of one core. Only the core writes them, except that a reader takes the dynamic series.
// 128 bytes: processors fetch lines of 64 bytes in pairs.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Shard {
    unit: ResponseTime,
    max_names: usize,
    pub(super) limits: Slots,
    /// Locked for one addition, or for the swap with an empty map.
    pub(super) dynamic: Mutex<DynamicSeries>,
    pub(super) global_shadow_mode: AtomicU64,
    pub(super) store_errors: AtomicU64,
    pub(super) service_errors: AtomicU64,
    /// Counts by `ExcessKind`, in its order.
    pub(super) excess: [AtomicU64; 2],
    pub(super) methods: [SharedMethodCounts; METHODS.len()],
    /// Calls of `/json`. Only the overview shows them: envoyproxy/ratelimit has no metric for them.
    json: SharedMethodCounts,
    pub(super) store: CounterStoreHealth,
}

/// Guard of a call in progress. Its drop counts the call with its response time.
#[derive(Debug)]
pub(crate) struct CallTimer<'s> {
    counts: &'s SharedMethodCounts,
    unit: ResponseTime,
    pub(crate) started: Instant,
}

impl Shard {
    pub(super) fn new(settings: &settings::MetricsSettings) -> Self {
        let times = if settings.needs_times() {
            KeepTimes::Yes
        } else {
            KeepTimes::No
        };
        Self {
            unit: settings.response_time,
            max_names: settings.max_names,
            limits: Slots::default(),
            dynamic: Mutex::default(),
            global_shadow_mode: AtomicU64::new(0),
            store_errors: AtomicU64::new(0),
            service_errors: AtomicU64::new(0),
            excess: Default::default(),
            methods: METHODS.map(|_| SharedMethodCounts::new(times)),
            json: SharedMethodCounts::default(),
            store: CounterStoreHealth::default(),
        }
    }

    /// Counts the results of one decision on `domain`.
    pub(crate) fn decision(&self, domain: &str, facts: &Facts) {
        for delta in &facts.tallies {
            match &delta.stats_key {
                StatsKey::Configured { slot } => self.limits.add(*slot, delta),
                StatsKey::FromRequest {
                    name,
                    configured_slot: of,
                } => lock(&self.dynamic).add(name, *of, delta, self.max_names),
            }
        }
        if facts.domain_not_found > 0 {
            lock(&self.dynamic).add_unknown_domain(domain, facts.domain_not_found, self.max_names);
        }
        if facts.global_shadow_mode {
            self.global_shadow_mode.fetch_add(1, Relaxed);
        }
    }

    /// Counts jobs that name a limit in a domain without configuration.
    pub(crate) fn unknown_domain(&self, domain: &str, times: u64) {
        lock(&self.dynamic).add_unknown_domain(domain, times, self.max_names);
    }

    /// Counts a failed call.
    pub(crate) fn failure(&self, failure: CallFailure) {
        let count = match failure {
            CallFailure::Store => &self.store_errors,
            CallFailure::Service => &self.service_errors,
        };
        count.fetch_add(1, Relaxed);
    }

    /// Records that the store failed a call.
    pub(crate) fn store_failed(&self, second: u64) {
        self.store.failed(second);
    }

    /// Records that a call succeeded.
    pub(crate) fn answered(&self, facts: &Facts, second: impl FnOnce() -> u64) {
        if self.store.is_failing() && !facts.tallies.is_empty() {
            self.store.answered(second());
        }
    }

    /// Counts a request that was refused for its size.
    pub(crate) fn excess(&self, part: ExcessKind) {
        self.excess[part as usize].fetch_add(1, Relaxed);
    }

    /// Starts the time of a unary gRPC call, which is counted when it ends or its client leaves.
    pub(crate) fn time(&self, method: Method) -> CallTimer<'_> {
        CallTimer {
            counts: &self.methods[method as usize],
            unit: self.unit,
            started: Instant::now(),
        }
    }

    /// Starts the time of a call of `/json`, which began at `started`.
    pub(crate) fn time_json(&self, started: Instant) -> CallTimer<'_> {
        CallTimer {
            counts: &self.json,
            unit: self.unit,
            started,
        }
    }

    /// Adds the rate limit calls to `times`. Returns their number.
    pub(super) fn add_decisions(&self, times: &mut tidegate_api::LatencyHistogram) -> u64 {
        self.methods[Method::ShouldRateLimit as usize].add_fine(times) + self.json.add_fine(times)
    }
}

impl Drop for CallTimer<'_> {
    fn drop(&mut self) {
        self.counts.observe(self.started.elapsed(), self.unit);
    }
}
