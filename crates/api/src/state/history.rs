//! Rates of the last hour at this server, kept in a bounded number of points.

pub(crate) mod percentile;

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tidegate_workflow::Timestamp;

use self::percentile::LatencyHistogram;
use super::metrics::{ApiMetrics, CountedEvent};

use crate::http::lock;

/// Time between two points.
pub const STEP: Duration = Duration::from_secs(10);
/// Most points: one hour.
const MAX_POINTS: usize = 360;
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
];
const SERIES_COUNT: usize = 13;
/// Number of rates, which are the first values of a point.
const RATE_COUNT: usize = 11;

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
}

/// Points of the last hour.
#[derive(Debug, Default)]
pub struct History(Mutex<HistoryState>);

#[derive(Debug, Default)]
struct HistoryState {
    points: VecDeque<HistoryPoint>,
    /// Time of the latest point.
    until: Option<Timestamp>,
    /// Counters at that time.
    last_counters: Option<CounterSnapshot>,
    /// Latest sample, and the counters at its end.
    latest_sample: Option<(HistoryPoint, CounterSnapshot)>,
}

/// All counters at one time.
#[derive(Debug, Clone)]
struct CounterSnapshot {
    at: Instant,
    rates: [u64; RATE_COUNT],
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
        for (value, share) in point.0[RATE_COUNT..].iter_mut().zip([0.5, 0.99]) {
            *value = times
                .percentile(share)
                .map_or(f32::NAN, |time| time.as_secs_f32() * 1_000.0);
        }
        point
    }
}

impl History {
    /// Adds a point at the time `now`. It is called every [`STEP`].
    pub fn record_point(&self, activity: &ApiMetrics, totals: GatewayTotals, now: Timestamp) {
        let counters = CounterSnapshot::read(activity, totals);
        let mut state = self.lock();
        let point = state
            .last_counters
            .as_ref()
            .map(|previous| counters.since(previous));
        if state.points.len() >= MAX_POINTS {
            state.points.pop_front();
        }
        state.points.extend(point);
        state.until = Some(now);
        state.last_counters = Some(counters);
    }

    /// Returns the points, the oldest first, and the time of the latest.
    pub(crate) fn points(&self) -> (Option<Timestamp>, Vec<HistoryPoint>) {
        let state = self.lock();
        (state.until, state.points.iter().copied().collect())
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
        // If the previous sample is older than `STEP`, rates are computed since the latest point.
        let previous_sample = state.latest_sample.as_ref().map(|(_, previous)| previous);
        let previous_sample = previous_sample
            .filter(|previous| counters.at.saturating_duration_since(previous.at) <= STEP);
        let point = previous_sample
            .or(state.last_counters.as_ref())
            .map_or(HistoryPoint::UNKNOWN, |previous| counters.since(previous));
        state.latest_sample = Some((point, counters));
        point
    }

    fn lock(&self) -> MutexGuard<'_, HistoryState> {
        lock(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_rates_and_their_number_is_bounded() {
        let history = History::default();
        let activity = ApiMetrics::default();
        assert!(history.points().1.is_empty());
        assert!(
            history
                .sample(&activity, &GatewayTotals::default)
                .shown(0)
                .is_none(),
            "nothing is known yet"
        );
        for calls in 0..MAX_POINTS as u64 + 5 {
            history.record_point(
                &activity,
                GatewayTotals {
                    calls,
                    ..GatewayTotals::default()
                },
                Timestamp::from_micros(calls),
            );
        }
        let (until, points) = history.points();
        assert_eq!(
            (until, points.len()),
            (
                Some(Timestamp::from_micros(MAX_POINTS as u64 + 4)),
                MAX_POINTS
            )
        );
        assert!(
            points
                .iter()
                .all(|point| point.shown(0).is_some_and(|rate| rate > 0.0))
        );
        assert!(points[0].shown(RATE_COUNT).is_none(), "no call, no time");
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
