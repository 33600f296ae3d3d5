//! Counts and response times of one gRPC method.

mod times;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::settings::ResponseTime;
use times::SharedTimes;
pub(super) use times::{Times, micros};

/// Upper bounds of the response time histogram in microseconds.
pub(super) const BUCKETS: [u64; 11] = [
    5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000,
    10_000_000,
];

/// A unary gRPC method that is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    ShouldRateLimit,
    Check,
}

pub(super) const METHODS: [(Method, &str); 2] = [
    (Method::ShouldRateLimit, "ShouldRateLimit"),
    (Method::Check, "Check"),
];

/// Whether calls are also counted by response time class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeepTimes {
    Yes,
    No,
}

/// Counts of one method.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct MethodCounts {
    pub(super) calls: u64,
    /// Sum of response times in microseconds.
    pub(super) microseconds: u64,
    /// Calls per bucket, not cumulative. Calls above the last bound are only in `calls`.
    pub(super) buckets: [u64; BUCKETS.len()],
}

/// Counts of one method that one core writes and others read.
#[derive(Debug)]
pub(super) struct SharedMethodCounts {
    calls: AtomicU64,
    microseconds: AtomicU64,
    buckets: [AtomicU64; BUCKETS.len()],
    /// Calls by the buckets of [`tidegate_api::Times`], for percentiles.
    percentile_buckets: [AtomicU64; tidegate_api::LatencyHistogram::BUCKETS],
    /// None if no exporter needs them.
    times: Option<SharedTimes>,
}

impl Default for SharedMethodCounts {
    fn default() -> Self {
        Self {
            calls: AtomicU64::new(0),
            microseconds: AtomicU64::new(0),
            buckets: Default::default(),
            percentile_buckets: [const { AtomicU64::new(0) };
                tidegate_api::LatencyHistogram::BUCKETS],
            times: None,
        }
    }
}

impl SharedMethodCounts {
    /// Creates counts with or without response time classes.
    pub(super) fn new(times: KeepTimes) -> Self {
        Self {
            times: (times == KeepTimes::Yes).then(SharedTimes::default),
            ..Self::default()
        }
    }

    /// Counts a call with the response time `elapsed`.
    pub(super) fn observe(&self, elapsed: Duration, unit: ResponseTime) {
        let microseconds = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        self.calls.fetch_add(1, Relaxed);
        self.microseconds.fetch_add(microseconds, Relaxed);
        self.percentile_buckets[tidegate_api::LatencyHistogram::bucket(microseconds)]
            .fetch_add(1, Relaxed);
        // Old dashboards expect milliseconds in buckets whose names are in seconds.
        let value = match unit {
            ResponseTime::Seconds => microseconds,
            ResponseTime::Milliseconds => microseconds.saturating_mul(1_000),
        };
        if let Some(at) = BUCKETS.iter().position(|bound| value <= *bound) {
            self.buckets[at].fetch_add(1, Relaxed);
        }
        if let Some(times) = &self.times {
            times.observe(microseconds);
        }
    }

    /// Adds the calls by class to `sum`, if they are kept.
    pub(super) fn add_times(&self, sum: &mut Times) {
        if let Some(times) = &self.times {
            times.add_to(sum);
        }
    }

    /// Adds all calls to `sum`. Returns their number.
    pub(super) fn add_fine(&self, sum: &mut tidegate_api::LatencyHistogram) -> u64 {
        for (bucket, calls) in self.percentile_buckets.iter().enumerate() {
            sum.add(bucket, calls.load(Relaxed));
        }
        self.calls.load(Relaxed)
    }

    pub(super) fn read(&self) -> MethodCounts {
        let buckets = self.buckets.each_ref().map(|bucket| bucket.load(Relaxed));
        // A call may be counted between the two loads, and a histogram must not decrease.
        let calls = self.calls.load(Relaxed).max(buckets.iter().sum());
        MethodCounts {
            calls,
            microseconds: self.microseconds.load(Relaxed),
            buckets,
        }
    }
}

impl MethodCounts {
    pub(super) fn merge(&mut self, other: &Self) {
        self.calls += other.calls;
        self.microseconds = self.microseconds.saturating_add(other.microseconds);
        for (into, from) in self.buckets.iter_mut().zip(&other.buckets) {
            *into += from;
        }
    }
}
