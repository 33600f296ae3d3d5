//! Answers by kind, and how long they took.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::{Value, json};

/// What one call came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Ok,
    OverLimit,
    /// An answer without a decision.
    Undecided,
    /// A gRPC error, by its number.
    Grpc(u16),
    /// The call got no gRPC answer; the word says what came instead.
    Failed(&'static str),
}

/// Percentiles that are reported, with their names.
const PERCENTILES: [(&str, f64); 5] = [
    ("p50", 50.0),
    ("p90", 90.0),
    ("p99", 99.0),
    ("p99.9", 99.9),
    ("max", 100.0),
];

/// Names of the gRPC codes by number.
const GRPC_CODES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

/// The name of a gRPC code.
pub(crate) fn grpc_code(number: u16) -> &'static str {
    GRPC_CODES
        .get(usize::from(number))
        .unwrap_or(&"other gRPC code")
}

/// Counts of answers, and a histogram of the times of those that carry a decision.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    pub(crate) ok: u64,
    pub(crate) over_limit: u64,
    pub(crate) errors: BTreeMap<&'static str, u64>,
    /// Nanoseconds.
    latency: Histogram<u64>,
}

impl Tally {
    pub(crate) fn new() -> Self {
        // Three digits from a microsecond to a minute; what lies outside is counted at the border.
        let latency =
            Histogram::new_with_bounds(1_000, 60_000_000_000, 3).expect("the bounds are valid");
        Self {
            ok: 0,
            over_limit: 0,
            errors: BTreeMap::new(),
            latency,
        }
    }

    pub(crate) fn add(&mut self, answer: Answer, took: Duration) {
        match answer {
            Answer::Ok => self.ok += 1,
            Answer::OverLimit => self.over_limit += 1,
            Answer::Undecided => return self.fail("no decision"),
            Answer::Grpc(code) => return self.fail(grpc_code(code)),
            Answer::Failed(what) => return self.fail(what),
        }
        self.latency.saturating_record(took.as_nanos() as u64);
    }

    fn fail(&mut self, what: &'static str) {
        *self.errors.entry(what).or_default() += 1;
    }

    /// Calls that were answered with a decision.
    pub(crate) fn decisions(&self) -> u64 {
        self.ok + self.over_limit
    }

    pub(crate) fn failures(&self) -> u64 {
        self.errors.values().sum()
    }

    /// Mean time, exact to the histogram's three digits; zero when nothing was answered.
    pub(crate) fn mean(&self) -> Duration {
        Duration::from_nanos(self.latency.mean() as u64)
    }

    /// The time that `percent` of the answered calls took at most; zero when nothing was answered.
    pub(crate) fn percentile(&self, percent: f64) -> Duration {
        Duration::from_nanos(self.latency.value_at_percentile(percent))
    }

    /// Name and time of each reported percentile; empty when nothing was answered.
    pub(crate) fn percentiles(&self) -> Vec<(&'static str, Duration)> {
        if self.latency.is_empty() {
            return Vec::new();
        }
        PERCENTILES
            .iter()
            .map(|(name, percent)| (*name, self.percentile(*percent)))
            .collect()
    }

    pub(crate) fn to_json(&self) -> Value {
        let latency: serde_json::Map<String, Value> = self
            .percentiles()
            .iter()
            .map(|(name, time)| ((*name).into(), json!(micros(*time))))
            .collect();
        json!({ "ok": self.ok, "over_limit": self.over_limit, "errors": self.errors, "latency_us": latency })
    }
}

/// Microseconds with their fraction.
pub(crate) fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1_000.0
}

/// Microseconds of processor time for each of `calls`.
pub(crate) fn per_call(time: Duration, calls: u64) -> f64 {
    micros(time) / calls.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_counted_by_kind() {
        let mut tally = Tally::new();
        let took = Duration::from_micros(10);
        let answers = [
            Answer::Ok,
            Answer::Ok,
            Answer::OverLimit,
            Answer::Grpc(14),
            Answer::Grpc(99),
        ];
        answers.iter().for_each(|answer| tally.add(*answer, took));
        tally.add(Answer::Undecided, took);
        tally.add(Answer::Failed("goaway"), took);
        assert_eq!(
            (
                tally.ok,
                tally.over_limit,
                tally.decisions(),
                tally.failures()
            ),
            (2, 1, 3, 4)
        );
        let errors: Vec<_> = tally
            .errors
            .iter()
            .map(|(name, count)| (*name, *count))
            .collect();
        assert_eq!(
            errors,
            [
                ("UNAVAILABLE", 1),
                ("goaway", 1),
                ("no decision", 1),
                ("other gRPC code", 1)
            ]
        );
    }

    #[test]
    fn percentiles_describe_decisions_only() {
        let mut tally = Tally::new();
        assert!(tally.percentiles().is_empty());
        (1..=1000).for_each(|micros| tally.add(Answer::Ok, Duration::from_micros(micros)));
        tally.add(Answer::Failed("reset"), Duration::from_secs(9));
        let near = |got: Duration, wanted: f64| (micros(got) / wanted - 1.0).abs() < 0.002;
        for ((name, got), wanted) in tally
            .percentiles()
            .into_iter()
            .zip([500.0, 900.0, 990.0, 999.0, 1000.0])
        {
            assert!(near(got, wanted), "{name}: {got:?} instead of {wanted} us");
        }
    }
}
