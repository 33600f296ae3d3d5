//! Counts of answers by kind, and their times.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::{Value, json};

use super::micros;

/// The result of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Ok,
    OverLimit,
    /// There was no decision. The text names the reason.
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
#[derive(Clone)]
pub(crate) struct AnswerCounts {
    pub(crate) ok: u64,
    pub(crate) over_limit: u64,
    pub(crate) errors: BTreeMap<&'static str, u64>,
    /// Nanoseconds.
    latency: Histogram<u64>,
}

impl AnswerCounts {
    pub(crate) fn new() -> Self {
        // The histogram has three digits from a microsecond to a minute. Times outside count at its
        // ends.
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
            Answer::Failed(what) => {
                *self.errors.entry(what).or_default() += 1;
                return;
            }
        }
        self.latency.saturating_record(took.as_nanos() as u64);
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

    /// Returns the time within which `percent` of the answered calls ended. Zero if none was
    /// answered.
    pub(crate) fn percentile(&self, percent: f64) -> Duration {
        Duration::from_nanos(self.latency.value_at_percentile(percent))
    }

    /// Returns all counts, and percentiles of times in microseconds if there are any.
    pub(crate) fn to_json(&self) -> Value {
        let time =
            |(name, percent): (&str, f64)| (name.into(), micros(self.percentile(percent)).into());
        let answered = !self.latency.is_empty();
        let latency: serde_json::Map<String, Value> = PERCENTILES
            .into_iter()
            .filter(|_| answered)
            .map(time)
            .collect();
        json!({ "ok": self.ok, "over_limit": self.over_limit, "errors": self.errors, "latency_us": latency })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_counted_by_kind() {
        let mut counts = AnswerCounts::new();
        let took = Duration::from_micros(10);
        let answers = [
            Answer::Ok,
            Answer::Ok,
            Answer::OverLimit,
            Answer::Failed(grpc_code(14)),
            Answer::Failed(grpc_code(99)),
        ];
        answers.iter().for_each(|answer| counts.add(*answer, took));
        counts.add(Answer::Failed("no decision"), took);
        counts.add(Answer::Failed("goaway"), took);
        assert_eq!(
            (
                counts.ok,
                counts.over_limit,
                counts.decisions(),
                counts.failures()
            ),
            (2, 1, 3, 4)
        );
        let errors: Vec<_> = counts
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
        let mut counts = AnswerCounts::new();
        let latency = |counts: &AnswerCounts| counts.to_json()["latency_us"].clone();
        assert_eq!(latency(&counts), json!({}));
        (1..=1000).for_each(|micros| counts.add(Answer::Ok, Duration::from_micros(micros)));
        counts.add(Answer::Failed("reset"), Duration::from_secs(9));
        for ((name, _), wanted) in PERCENTILES
            .into_iter()
            .zip([500.0, 900.0, 990.0, 999.0, 1000.0])
        {
            let got = latency(&counts)[name].as_f64().unwrap();
            assert!(
                (got / wanted - 1.0).abs() < 0.002,
                "{name}: {got} instead of {wanted} us"
            );
        }
    }
}
