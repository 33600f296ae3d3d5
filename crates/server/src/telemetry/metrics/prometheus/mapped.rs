//! Page of metrics by a mapping file. The rule of each name is searched once.
//!
//! Names of the server itself (`tidegate_`, `process_`) are not mapped.

mod find;
mod series;

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use super::Page;
use crate::settings::Mapping;
use crate::telemetry::metrics::dotted::{MetricSample, RARE_SUFFIXES, SampleKind};
use crate::telemetry::metrics::snapshot::Snapshot;
use series::{SampleValue, SeriesTable};

/// Time window of the calls for quantiles: ten minutes, as in the reference.
const QUANTILE_WINDOW: Duration = Duration::from_secs(600);
/// Number of steps in which the window moves on.
const WINDOW_STEPS: u32 = 5;

/// The rules, and the series of known names. One page is written at a time.
#[derive(Debug)]
pub(in crate::telemetry::metrics) struct MappedMetrics {
    rules: Mapping,
    series: SeriesTable,
    /// Earlier counts of calls, which are subtracted to get the recent calls.
    earlier: Vec<(Instant, Snapshot)>,
}

impl MappedMetrics {
    pub(in crate::telemetry::metrics) fn new(rules: Mapping, tags: &[(String, String)]) -> Self {
        Self {
            series: SeriesTable::new(tags),
            rules,
            earlier: Vec::new(),
        }
    }

    /// Writes all samples of the reference.
    pub(super) fn write(&mut self, page: &mut Page, snapshot: &Snapshot, now: Instant) {
        self.series.begin();
        for sample in snapshot.samples().filter(is_shown) {
            let Some(id) = self.series.series_id(&sample, &self.rules) else {
                continue;
            };
            match sample.kind {
                SampleKind::Timer { micros } => {
                    self.series
                        .observe(id, micros, sample.value, |value| &mut value.all)
                }
                SampleKind::Counter | SampleKind::Gauge => self.series.add(id, sample.value),
            }
        }
        self.add_recent_calls(snapshot, now);
        self.series.write(&mut page.out);
    }

    /// Adds the recent calls, for quantiles.
    fn add_recent_calls(&mut self, snapshot: &Snapshot, now: Instant) {
        // The window begins at the last entry outside of it.
        while self
            .earlier
            .get(1)
            .is_some_and(|(at, _)| now.duration_since(*at) >= QUANTILE_WINDOW)
        {
            self.earlier.remove(0);
        }
        let none = Snapshot::default();
        let begin = self
            .earlier
            .first()
            .filter(|(at, _)| now.duration_since(*at) >= QUANTILE_WINDOW)
            .map_or(&none, |(_, then)| then);
        let calls = snapshot.calls();
        for sample in calls.since(begin) {
            let SampleKind::Timer { micros } = sample.kind else {
                continue;
            };
            if let Some(id) = self.series.series_id(&sample, &self.rules) {
                self.series
                    .observe(id, micros, sample.value, |value| &mut value.recent);
            }
        }
        if self
            .earlier
            .last()
            .is_none_or(|(at, _)| now.duration_since(*at) >= QUANTILE_WINDOW / WINDOW_STEPS)
        {
            self.earlier.push((now, calls));
        }
    }
}

impl Snapshot {
    /// The response times alone.
    fn calls(&self) -> Self {
        Self {
            times: self.times.clone(),
            ..Self::default()
        }
    }
}

/// Whether a sample has a name of the reference and a relevant value: rare counters are shown once
/// they are above zero.
fn is_shown(sample: &MetricSample<'_>) -> bool {
    !sample.name.1.starts_with("tidegate.")
        && !sample.name.0.starts_with("tidegate.")
        && (sample.value > 0 || !RARE_SUFFIXES.contains(&sample.name.2))
}

/// Appends the samples of a histogram.
fn histogram(out: &mut String, name: &str, labels: &str, buckets: &[f64], observed: &[(f64, u64)]) {
    let comma = if labels.is_empty() { "" } else { "," };
    let up_to = |end: f64| {
        observed
            .iter()
            .filter(|(value, _)| *value <= end)
            .map(|(_, calls)| calls)
            .sum::<u64>()
    };
    for end in buckets {
        let _ = writeln!(
            out,
            "{name}_bucket{{{labels}{comma}le=\"{end}\"}} {}",
            up_to(*end)
        );
    }
    let all = up_to(f64::INFINITY);
    let _ = writeln!(out, "{name}_bucket{{{labels}{comma}le=\"+Inf\"}} {all}");
    sum_and_count(out, name, labels, observed);
}

/// Appends the samples of a summary. Its quantiles cover recent calls; its sum and count cover all.
fn summary(out: &mut String, name: &str, labels: &str, quantiles: &[f64], observed: &SampleValue) {
    let comma = if labels.is_empty() { "" } else { "," };
    let mut recent = observed.recent.clone();
    recent.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    let calls: u64 = recent.iter().map(|(_, calls)| calls).sum();
    for quantile in quantiles {
        let rank = (quantile * calls as f64).ceil().max(1.0) as u64;
        let mut below = 0;
        let at_rank = recent.iter().find(|(_, calls)| {
            below += calls;
            below >= rank
        });
        let value = at_rank.map_or(f64::NAN, |(value, _)| *value);
        let _ = writeln!(
            out,
            "{name}{{{labels}{comma}quantile=\"{quantile}\"}} {value}"
        );
    }
    sum_and_count(out, name, labels, &observed.all);
}

fn sum_and_count(out: &mut String, name: &str, labels: &str, observed: &[(f64, u64)]) {
    let sum: f64 = observed
        .iter()
        .map(|(value, calls)| value * *calls as f64)
        .sum();
    let calls: u64 = observed.iter().map(|(_, calls)| calls).sum();
    let labels = if labels.is_empty() {
        String::new()
    } else {
        format!("{{{labels}}}")
    };
    let _ = writeln!(
        out,
        "{name}_sum{labels} {sum}\n{name}_count{labels} {calls}"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> Page {
        Page {
            out: String::new(),
            extra: String::new(),
        }
    }

    fn snapshot(times: &[u64]) -> Snapshot {
        let mut snapshot = Snapshot::default();
        snapshot.times[0] = times.to_vec();
        snapshot
    }

    /// The median, and the number of all calls.
    fn told(mapped: &mut MappedMetrics, times: &[u64], now: Instant) -> (String, String) {
        let mut page = page();
        mapped.write(&mut page, &snapshot(times), now);
        let value = |start: &str| {
            page.out
                .lines()
                .find_map(|line| line.strip_prefix(start))
                .unwrap_or_default()
                .to_owned()
        };
        let name = "ratelimit_server_ShouldRateLimit_response_time";
        (
            value(&format!("{name}{{quantile=\"0.5\"}} ")),
            value(&format!("{name}_count ")),
        )
    }

    #[test]
    fn quantiles_are_of_the_last_ten_minutes_and_counts_of_all_calls() {
        let start = Instant::now();
        let mut mapped = MappedMetrics::new(Mapping::default(), &[]);
        let mut check = |minutes: u64, times: &[u64], median: &str, calls: &str| {
            let now = start + Duration::from_secs(60 * minutes);
            let told = told(&mut mapped, times, now);
            assert_eq!(
                (told.0.as_str(), told.1.as_str()),
                (median, calls),
                "after {minutes} minutes"
            );
        };
        // 100 calls of 0.001 ms, then one of 0.003 ms, then none.
        check(0, &[0, 100, 0, 0], "0.001", "100");
        check(5, &[0, 100, 0, 1], "0.001", "101");
        check(9, &[0, 100, 0, 1], "0.001", "101");
        check(10, &[0, 100, 0, 1], "0.003", "101");
        check(16, &[0, 100, 0, 1], "NaN", "101");
        check(600, &[0, 100, 7, 1], "0.002", "108");
    }

    #[test]
    fn a_bucket_has_the_calls_up_to_its_end() {
        let mut out = String::new();
        histogram(
            &mut out,
            "t",
            "a=\"b\"",
            &[0.005, 1.0],
            &[(0.005, 2), (0.006, 1), (2.0, 4)],
        );
        let expected = "t_bucket{a=\"b\",le=\"0.005\"} 2\nt_bucket{a=\"b\",le=\"1\"} 3\nt_bucket{a=\"b\",le=\"+Inf\"} 7\n";
        assert!(out.starts_with(expected), "{out}");
        assert!(
            out.ends_with("t_sum{a=\"b\"} 8.016\nt_count{a=\"b\"} 7\n"),
            "{out}"
        );
    }
}
