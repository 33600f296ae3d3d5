//! The numbers of one core, and of their sum.

use std::sync::Arc;

use hashbrown::HashMap;
use tidegate_ratelimit::Tally;

use crate::settings::ResponseTime;

/// Upper bounds of the response time histogram, as text, in seconds, and in microseconds.
pub(super) const BUCKETS: [(&str, u64); 11] = [
    ("0.005", 5_000),
    ("0.01", 10_000),
    ("0.025", 25_000),
    ("0.05", 50_000),
    ("0.1", 100_000),
    ("0.25", 250_000),
    ("0.5", 500_000),
    ("1", 1_000_000),
    ("2.5", 2_500_000),
    ("5", 5_000_000),
    ("10", 10_000_000),
];

/// A unary gRPC method that is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    ShouldRateLimit,
    Check,
}

/// Each method and its name, in the order of [`Method`].
pub(super) const METHODS: [(Method, &str); 2] =
    [(Method::ShouldRateLimit, "ShouldRateLimit"), (Method::Check, "Check")];

/// What one core counts.
#[derive(Debug, Clone, Default)]
pub(super) struct Counts {
    pub(super) limits: HashMap<Arc<str>, LimitCounts>,
    pub(super) unknown_domains: HashMap<Arc<str>, u64>,
    pub(super) global_shadow_mode: u64,
    pub(super) store_errors: u64,
    pub(super) service_errors: u64,
    pub(super) methods: [MethodCounts; METHODS.len()],
}

/// The hits of one limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct LimitCounts {
    pub(super) total_hits: u64,
    pub(super) over_limit: u64,
    pub(super) near_limit: u64,
    pub(super) within_limit: u64,
    pub(super) over_limit_with_local_cache: u64,
    pub(super) shadow_mode: u64,
    pub(super) total_negative_hits: u64,
}

/// The calls of one method.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct MethodCounts {
    pub(super) calls: u64,
    /// Sum of response times.
    pub(super) microseconds: u64,
    /// Calls per bucket, not cumulative. Calls beyond the last bound are only in `calls`.
    pub(super) buckets: [u64; BUCKETS.len()],
}

impl LimitCounts {
    /// Adds the hits of one call. Clients choose their number, so a sum wraps around instead of ending the process.
    pub(super) fn add(&mut self, tally: &Tally) {
        for (count, more) in [
            (&mut self.total_hits, tally.total_hits),
            (&mut self.over_limit, tally.over_limit),
            (&mut self.near_limit, tally.near_limit),
            (&mut self.within_limit, tally.within_limit),
            (&mut self.over_limit_with_local_cache, tally.over_limit_with_local_cache),
            (&mut self.shadow_mode, tally.shadow_mode),
            (&mut self.total_negative_hits, tally.total_negative_hits),
        ] {
            *count = count.wrapping_add(more);
        }
    }

    /// Adds the numbers of another core.
    pub(super) fn merge(&mut self, other: &Self) {
        self.total_hits += other.total_hits;
        self.over_limit += other.over_limit;
        self.near_limit += other.near_limit;
        self.within_limit += other.within_limit;
        self.over_limit_with_local_cache += other.over_limit_with_local_cache;
        self.shadow_mode += other.shadow_mode;
        self.total_negative_hits += other.total_negative_hits;
    }
}

impl MethodCounts {
    /// Counts a call that took so long.
    pub(super) fn observe(&mut self, microseconds: u64, unit: ResponseTime) {
        self.calls += 1;
        self.microseconds = self.microseconds.saturating_add(microseconds);
        // Old dashboards expect milliseconds in buckets that are named in seconds.
        let value = match unit {
            ResponseTime::Seconds => microseconds,
            ResponseTime::Milliseconds => microseconds.saturating_mul(1_000),
        };
        if let Some(at) = BUCKETS.iter().position(|&(_, bound)| value <= bound) {
            self.buckets[at] += 1;
        }
    }

    /// Adds the numbers of another core.
    pub(super) fn merge(&mut self, other: &Self) {
        self.calls += other.calls;
        self.microseconds = self.microseconds.saturating_add(other.microseconds);
        for (into, from) in self.buckets.iter_mut().zip(&other.buckets) {
            *into += from;
        }
    }
}
