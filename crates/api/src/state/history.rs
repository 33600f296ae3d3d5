//! Rates of the last day at this server, kept in a bounded number of points.

pub(crate) mod limit_rates;
pub(crate) mod limit_series;
pub(crate) mod percentile;
pub(crate) mod refused_keys;
mod ring;

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tidegate_ratelimit::{Configuration, Limiter};
use tidegate_workflow::{Status, Timestamp};

pub use self::limit_rates::LIMIT_RATES_STEP;
use self::limit_rates::{LimitRate, LimitRates};
use self::limit_series::{LatestPoints, SeriesInRange};
use self::percentile::LatencyHistogram;
use self::refused_keys::{RefusedInRange, RefusedKeys, Steps};
use self::ring::{HistorySeries, Ring};
use super::config_status::LimitUse;
use super::metrics::{ApiMetrics, CountedEvent, WorkflowCounts};

use crate::http::lock;
use crate::http::problem::Problem;
use crate::http::query::Query;

/// Time between two calls of [`History::record_point`].
pub const STEP: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Age at which a sample is too old to compute rates since then.
const MAX_SAMPLE_AGE: Duration = Duration::from_secs(10);
/// Time for which a sample is reused, whatever the number of its readers.
const SAMPLE_TTL: Duration = Duration::from_secs(1);

/// Names of the values of a point.
pub(crate) const NAMES: [&str; SERIES_COUNT] = [
    "calls",
    "decisions_ok",
    "decisions_near_limit",
    "decisions_over_limit",
    "decisions_failed",
    "workflows_created",
    "jobs_started",
    "jobs_succeeded",
    "jobs_failed",
    "jobs_retried",
    "leases_lost",
    "decision_p50_ms",
    "decision_p99_ms",
    "jobs_running",
    "jobs_ready",
    "workflows_failed",
    "workflows_running",
];
const SERIES_COUNT: usize = RATE_COUNT + PERCENTILES.len() + GAUGE_COUNT;
/// Number of rates, which are the first values of a point. Percentiles follow, and then gauges.
const RATE_COUNT: usize = 11;
const PERCENTILES: [f64; 2] = [0.5, 0.99];
const PERCENTILE_INDICES: Range<usize> = RATE_COUNT..RATE_COUNT + PERCENTILES.len();
const GAUGE_COUNT: usize = 4;

/// Ranges of series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HistoryRange {
    FiveMinutes,
    QuarterHour,
    Hour,
    Day,
}

impl HistoryRange {
    pub(crate) const WORDS: [&str; 4] = ["5m", "15m", "1h", "24h"];
    const ALL: [Self; 4] = [Self::FiveMinutes, Self::QuarterHour, Self::Hour, Self::Day];

    fn from_word(word: &str) -> Option<Self> {
        let index = Self::WORDS.iter().position(|known| *known == word)?;
        Some(Self::ALL[index])
    }

    /// Takes the parameter `range` of a query: an hour if it is left out.
    pub(crate) fn from_query(query: &mut Query) -> Result<Self, Problem> {
        let Some(word) = query.remove("range") else {
            return Ok(Self::Hour);
        };
        Self::from_word(&word).ok_or_else(|| {
            let words = Self::WORDS.join(", ");
            Problem::field("range", format!("expected one of {words}"))
        })
    }

    /// Steps of refusals, which are counted by minute.
    pub(crate) fn refusal_steps(self) -> Steps {
        let (minutes, count) = match self {
            Self::FiveMinutes => (1, 5),
            Self::QuarterHour => (1, 15),
            Self::Hour => (3, 20),
            Self::Day => (60, 24),
        };
        Steps { minutes, count }
    }

    fn limit_points(self) -> LatestPoints {
        match self {
            Self::FiveMinutes => LatestPoints::FIVE_MINUTES,
            Self::QuarterHour => LatestPoints::QUARTER_HOUR,
            Self::Hour => LatestPoints::HOUR,
            Self::Day => LatestPoints::DAY,
        }
    }

    pub(crate) fn span(self) -> Duration {
        match self {
            Self::FiveMinutes => 5 * MINUTE,
            Self::QuarterHour => 15 * MINUTE,
            Self::Hour => HOUR,
            Self::Day => DAY,
        }
    }
}

/// Counts of the gateway since the server started.
#[derive(Debug, Clone, Default)]
pub struct GatewayTotals {
    /// Number of calls that asked for decisions.
    pub calls: u64,
    /// Number of hits within their limits, near ones included.
    pub within_limit: u64,
    /// Number of hits near their limits.
    pub near_limit: u64,
    /// Number of hits over their limits.
    pub over_limit: u64,
    /// Number of calls without a decision.
    pub failed: u64,
    /// Histogram of the durations of the calls.
    pub times: LatencyHistogram,
}

/// Values of one point in time. A value is NaN if it is not known.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HistoryPoint([f32; SERIES_COUNT]);

impl HistoryPoint {
    const UNKNOWN: Self = Self([f32::NAN; SERIES_COUNT]);

    /// Returns the value with three decimals. `None` if it is not known.
    pub(crate) fn shown(&self, at: usize) -> Option<f64> {
        let value = f64::from(self.0[at]);
        value
            .is_finite()
            .then(|| (value * 1_000.0).round() / 1_000.0)
    }

    /// Merges points of equal width: the mean of each value, and the highest of a percentile.
    fn merge(points: &[Self]) -> Self {
        let mut merged = Self::UNKNOWN;
        for (at, value) in merged.0.iter_mut().enumerate() {
            let known = points
                .iter()
                .map(|point| point.0[at])
                .filter(|value| !value.is_nan());
            *value = if PERCENTILE_INDICES.contains(&at) {
                known.fold(f32::NAN, f32::max)
            } else {
                known.clone().sum::<f32>() / known.count() as f32
            };
        }
        merged
    }
}

/// Points of the last day, and the rates of limits in the last minute.
#[derive(Debug, Default)]
pub struct History {
    state: Mutex<HistoryState>,
    limit_rates: LimitRates,
    refused_keys: RefusedKeys,
}

/// All points take less than 160 KiB.
#[derive(Debug)]
struct HistoryState {
    /// Points of a second each, for five minutes.
    seconds: Ring,
    /// Points of ten seconds each, for an hour.
    ten_seconds: Ring,
    /// Points of a minute each, for a day.
    minutes: Ring,
    /// Latest sample, and the counters at its end.
    latest_sample: Option<(HistoryPoint, CounterSnapshot)>,
}

impl Default for HistoryState {
    fn default() -> Self {
        Self {
            seconds: Ring::new(STEP, 5 * MINUTE),
            ten_seconds: Ring::new(10 * STEP, HOUR),
            minutes: Ring::new(MINUTE, DAY),
            latest_sample: None,
        }
    }
}

/// All counters at one time.
#[derive(Debug, Clone)]
struct CounterSnapshot {
    at: Instant,
    rates: [u64; RATE_COUNT],
    /// NaN if not known.
    gauges: [f32; GAUGE_COUNT],
    times: LatencyHistogram,
}

impl CounterSnapshot {
    fn read(activity: &ApiMetrics, totals: GatewayTotals) -> Self {
        let counter = |event| activity.get(event);
        let rates = [
            totals.calls,
            totals.within_limit,
            totals.near_limit,
            totals.over_limit,
            totals.failed,
            counter(CountedEvent::Created),
            counter(CountedEvent::Claimed),
            counter(CountedEvent::Succeeded),
            counter(CountedEvent::Failed),
            counter(CountedEvent::TriedAgain),
            counter(CountedEvent::LeaseLost),
        ];
        Self {
            at: Instant::now(),
            rates,
            gauges: gauges(activity.recent_workflow_counts().as_ref()),
            times: totals.times,
        }
    }

    /// Returns the rates between two times.
    fn since(&self, previous: &Self) -> HistoryPoint {
        let mut point = HistoryPoint::UNKNOWN;
        let seconds = (self.at - previous.at).as_secs_f32();
        if seconds <= 0.0 {
            return point;
        }
        for (rate, (now, then)) in point
            .0
            .iter_mut()
            .zip(self.rates.iter().zip(&previous.rates))
        {
            // The counters of a configuration start again at 0 when it is loaded anew.
            *rate = now.saturating_sub(*then) as f32 / seconds;
        }
        let times = self.times.since(&previous.times);
        for (value, share) in point.0[PERCENTILE_INDICES].iter_mut().zip(PERCENTILES) {
            *value = times
                .percentile(share)
                .map_or(f32::NAN, |time| time.as_secs_f32() * 1_000.0);
        }
        point.0[PERCENTILE_INDICES.end..].copy_from_slice(&self.gauges);
        point
    }
}

/// Returns the numbers of jobs and workflows that have a series.
fn gauges(counts: Option<&WorkflowCounts>) -> [f32; GAUGE_COUNT] {
    let Some(counts) = counts else {
        return [f32::NAN; GAUGE_COUNT];
    };
    let count = |numbers: &[(&str, u64)], word: &str| {
        let of_word = numbers.iter().find(|(known, _)| *known == word);
        match of_word {
            Some((_, number)) => *number as f32,
            // Jobs are counted in rounds: before the end of the first, there are no numbers.
            None if numbers.is_empty() => f32::NAN,
            None => 0.0,
        }
    };
    [
        count(&counts.jobs, "running"),
        count(&counts.jobs, "ready"),
        count(&counts.workflows, Status::Failed.word()),
        count(&counts.workflows, Status::Running.word()),
    ]
}

impl History {
    /// Adds the points that are complete at the time `now`. It is called every [`STEP`].
    pub fn record_point(&self, activity: &ApiMetrics, totals: GatewayTotals, now: Timestamp) {
        let counters = CounterSnapshot::read(activity, totals);
        let mut state = self.lock();
        state.seconds.record(&counters, now);
        state.ten_seconds.record(&counters, now);
        state.minutes.record(&counters, now);
    }

    /// Reads the counts of all limits. It is called every [`LIMIT_RATES_STEP`].
    pub fn record_limits(
        &self,
        configuration: &Arc<Configuration>,
        uses: impl Fn(&[u32]) -> Vec<LimitUse>,
    ) {
        self.limit_rates.record(configuration, uses, Instant::now());
    }

    /// Reads the refusals of the latest two minutes. It is called at least once a minute.
    pub fn record_refusals(&self, limiter: &Limiter, now: tidegate_ratelimit::Timestamp) {
        for minute in limiter.key_minutes(now) {
            self.refused_keys.record(&minute);
        }
    }

    /// Returns the keys that were refused in a range.
    pub(crate) fn refused(
        &self,
        range: HistoryRange,
        now: tidegate_ratelimit::Timestamp,
    ) -> RefusedInRange {
        self.refused_keys.in_range(range.refusal_steps(), now)
    }

    /// Returns the rates of the limits with these slots and current counts, where they are known.
    pub(crate) fn limit_rates(
        &self,
        configuration: &Configuration,
        slots: &[u32],
        uses: &[LimitUse],
    ) -> Vec<Option<LimitRate>> {
        self.limit_rates
            .rates(configuration, slots, uses, Instant::now())
    }

    /// Returns the series of the limits of these rules in a range.
    pub(crate) fn limit_series(&self, range: HistoryRange, rules: &[String]) -> SeriesInRange {
        self.limit_rates.series(range.limit_points(), rules)
    }

    /// Returns the points of a range.
    pub(crate) fn series(&self, range: HistoryRange) -> HistorySeries {
        let state = self.lock();
        let ring = match range {
            HistoryRange::FiveMinutes => &state.seconds,
            HistoryRange::QuarterHour | HistoryRange::Hour => &state.ten_seconds,
            HistoryRange::Day => &state.minutes,
        };
        ring.series(range.span())
    }

    /// Returns the sample of the last second or a little more.
    pub(crate) fn sample(
        &self,
        activity: &ApiMetrics,
        totals: &dyn Fn() -> GatewayTotals,
    ) -> HistoryPoint {
        let now = Instant::now();
        let mut state = self.lock();
        if let Some((point, counters)) = &state.latest_sample
            && now.saturating_duration_since(counters.at) < SAMPLE_TTL
        {
            return *point;
        }
        let counters = CounterSnapshot::read(activity, totals());
        // If the previous sample is too old, rates are computed since the latest point.
        let previous_sample = state.latest_sample.as_ref().map(|(_, previous)| previous);
        let previous_sample = previous_sample.filter(|previous| {
            counters.at.saturating_duration_since(previous.at) <= MAX_SAMPLE_AGE
        });
        let point = previous_sample
            .or(state.ten_seconds.last_counters())
            .map_or(HistoryPoint::UNKNOWN, |previous| counters.since(previous));
        state.latest_sample = Some((point, counters));
        point
    }

    fn lock(&self) -> MutexGuard<'_, HistoryState> {
        lock(&self.state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_range_has_steps_of_its_own() {
        let history = History::default();
        let activity = ApiMetrics::default();
        for (word, step) in HistoryRange::WORDS.into_iter().zip([1, 10, 10, 60]) {
            let range = HistoryRange::from_word(word).unwrap();
            let series = history.series(range);
            assert_eq!(series.step, Duration::from_secs(step), "{word}");
            assert!(series.points.is_empty() && series.until.is_none());
        }
        assert_eq!(HistoryRange::from_word("5 m"), None);
        let sample = history.sample(&activity, &GatewayTotals::default);
        assert_eq!(sample.shown(0), None, "nothing is known yet");
    }

    #[test]
    fn jobs_and_workflows_are_known_after_they_were_counted() {
        assert!(gauges(None).iter().all(|value| value.is_nan()));
        let mut counts = WorkflowCounts {
            workflows: vec![("failed", 3)],
            ..WorkflowCounts::default()
        };
        let [running_jobs, _, failed, running] = gauges(Some(&counts));
        assert!(running_jobs.is_nan() && failed == 3.0 && running == 0.0);
        counts.jobs = vec![("ready", 7), ("running", 2)];
        assert_eq!(gauges(Some(&counts)), [2.0, 7.0, 3.0, 0.0]);
    }

    #[test]
    fn merged_points_are_means_and_the_highest_percentiles() {
        let mut points = [HistoryPoint::UNKNOWN; 3];
        points[0].0 = [1.0; SERIES_COUNT];
        points[1].0 = [2.0; SERIES_COUNT];
        let merged = HistoryPoint::merge(&points);
        let shown = |at| merged.shown(at).unwrap();
        assert_eq!((shown(0), shown(RATE_COUNT), shown(16)), (1.5, 2.0, 1.5));
        assert_eq!(HistoryPoint::merge(&points[2..]).shown(0), None);
    }

    #[test]
    fn what_starts_to_count_again_is_no_negative_rate() {
        let at = Instant::now();
        let counted = |seconds, calls, created| {
            let mut rates = [0; RATE_COUNT];
            (rates[0], rates[5]) = (calls, created);
            CounterSnapshot {
                at: at + Duration::from_secs(seconds),
                rates,
                gauges: gauges(None),
                times: LatencyHistogram::default(),
            }
        };
        let point = counted(10, 500, 7).since(&counted(0, 1_000, 2));
        assert_eq!(
            (point.shown(0), point.shown(5), point.shown(1)),
            (Some(0.0), Some(0.5), Some(0.0))
        );
        assert!(
            counted(0, 1, 1).since(&counted(0, 0, 0)).shown(0).is_none(),
            "no time has passed"
        );
    }
}
