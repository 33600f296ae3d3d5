//! Rates of the last hour at this server, kept in a bounded number of points.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tidegate_workflow::Timestamp;

use super::percentile::Times;
use crate::metrics::{Activity, Event};

/// Time between two points.
pub const STEP: Duration = Duration::from_secs(10);
/// Most points: one hour.
const POINTS: usize = 360;
/// Time for which a sample is reused, whatever the number of its readers.
const APART: Duration = Duration::from_secs(1);

/// Names of the values of a point.
pub(super) const NAMES: [&str; SERIES] = [
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
const SERIES: usize = 13;
/// Number of rates, which are the first values of a point.
const RATES: usize = 11;

/// Counts of the gateway since the server started.
#[derive(Debug, Clone, Default)]
pub struct Totals {
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
    pub times: Times,
}

/// Values of one point in time. A value is NaN if it is not known.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Point([f32; SERIES]);

impl Point {
    const UNKNOWN: Self = Self([f32::NAN; SERIES]);

    /// Returns the value with three decimals. `None` if it is not known.
    pub(super) fn shown(&self, at: usize) -> Option<f64> {
        let value = f64::from(self.0[at]);
        value
            .is_finite()
            .then(|| (value * 1_000.0).round() / 1_000.0)
    }
}

/// Points of the last hour.
#[derive(Debug, Default)]
pub struct History(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    points: VecDeque<Point>,
    /// Time of the latest point.
    until: Option<Timestamp>,
    /// Counters at that time.
    noted: Option<Counted>,
    /// Latest sample, and the counters at its end.
    fresh: Option<(Point, Counted)>,
}

/// All counters at one time.
#[derive(Debug, Clone)]
struct Counted {
    at: Instant,
    rates: [u64; RATES],
    times: Times,
}

impl Counted {
    fn of(activity: &Activity, totals: Totals) -> Self {
        let of = |event| activity.get(event);
        let Totals {
            calls,
            within_limit,
            near_limit,
            over_limit,
            failed,
            times,
        } = totals;
        let rates = [
            calls,
            within_limit,
            near_limit,
            over_limit,
            failed,
            of(Event::Created),
            of(Event::Claimed),
            of(Event::Succeeded),
            of(Event::Failed),
            of(Event::TriedAgain),
            of(Event::LeaseLost),
        ];
        Self {
            at: Instant::now(),
            rates,
            times,
        }
    }

    /// Returns the rates between two times.
    fn since(&self, before: &Self) -> Point {
        let mut point = Point::UNKNOWN;
        let seconds = (self.at - before.at).as_secs_f32();
        if seconds <= 0.0 {
            return point;
        }
        for (rate, (now, then)) in point.0.iter_mut().zip(self.rates.iter().zip(&before.rates)) {
            // The counters of a configuration start again at 0 when it is loaded anew.
            *rate = now.saturating_sub(*then) as f32 / seconds;
        }
        let times = self.times.since(&before.times);
        for (value, share) in point.0[RATES..].iter_mut().zip([0.5, 0.99]) {
            *value = times
                .percentile(share)
                .map_or(f32::NAN, |time| time.as_secs_f32() * 1_000.0);
        }
        point
    }
}

impl History {
    /// Adds a point at the time `now`. It is called every [`STEP`].
    pub fn note(&self, activity: &Activity, totals: Totals, now: Timestamp) {
        let counted = Counted::of(activity, totals);
        let mut state = self.lock();
        let point = state.noted.as_ref().map(|before| counted.since(before));
        if state.points.len() >= POINTS {
            state.points.pop_front();
        }
        state.points.extend(point);
        state.until = Some(now);
        state.noted = Some(counted);
    }

    /// Returns the points, the oldest first, and the time of the latest.
    pub(super) fn points(&self) -> (Option<Timestamp>, Vec<Point>) {
        let state = self.lock();
        (state.until, state.points.iter().copied().collect())
    }

    /// Returns the sample of the last second or a little more.
    pub(super) fn now(&self, activity: &Activity, totals: &dyn Fn() -> Totals) -> Point {
        let now = Instant::now();
        let mut state = self.lock();
        if let Some((point, counted)) = &state.fresh
            && now.saturating_duration_since(counted.at) < APART
        {
            return *point;
        }
        let counted = Counted::of(activity, totals());
        // If the previous sample is older than `STEP`, rates are computed since the latest point.
        let recent = state.fresh.as_ref().map(|(_, before)| before);
        let recent =
            recent.filter(|before| counted.at.saturating_duration_since(before.at) <= STEP);
        let point = recent
            .or(state.noted.as_ref())
            .map_or(Point::UNKNOWN, |before| counted.since(before));
        state.fresh = Some((point, counted));
        point
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_rates_and_their_number_is_bounded() {
        let history = History::default();
        let activity = Activity::default();
        assert!(history.points().1.is_empty());
        assert!(
            history.now(&activity, &Totals::default).shown(0).is_none(),
            "nothing is known yet"
        );
        for calls in 0..POINTS as u64 + 5 {
            history.note(
                &activity,
                Totals {
                    calls,
                    ..Totals::default()
                },
                Timestamp::from_micros(calls),
            );
        }
        let (until, points) = history.points();
        assert_eq!(
            (until, points.len()),
            (Some(Timestamp::from_micros(POINTS as u64 + 4)), POINTS)
        );
        assert!(
            points
                .iter()
                .all(|point| point.shown(0).is_some_and(|rate| rate > 0.0))
        );
        assert!(points[0].shown(RATES).is_none(), "no call, no time");
    }

    #[test]
    fn what_starts_to_count_again_is_no_negative_rate() {
        let at = Instant::now();
        let counted = |seconds, calls, created| {
            let mut rates = [0; RATES];
            (rates[0], rates[5]) = (calls, created);
            Counted {
                at: at + Duration::from_secs(seconds),
                rates,
                times: Times::default(),
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
