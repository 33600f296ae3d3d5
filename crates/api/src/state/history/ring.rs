//! Points of one width. The oldest are forgotten.

use std::collections::VecDeque;
use std::time::Duration;

use tidegate_workflow::Timestamp;

use super::{CounterSnapshot, HistoryPoint, STEP};

/// Most points of a series.
const MAX_POINTS: usize = 360;

/// Points of one width.
#[derive(Debug)]
pub(super) struct Ring {
    step: Duration,
    capacity: usize,
    points: VecDeque<HistoryPoint>,
    /// Number of points since the server started: it says where groups of points begin.
    recorded: usize,
    /// Time of the latest point.
    until: Option<Timestamp>,
    /// Counters at that time.
    last_counters: Option<CounterSnapshot>,
}

/// Points of equal width, all of them complete.
#[derive(Debug)]
pub(crate) struct HistorySeries {
    pub(crate) step: Duration,
    /// Time of the latest point. `None` before there are counters.
    pub(crate) until: Option<Timestamp>,
    /// Points, the oldest first.
    pub(crate) points: Vec<HistoryPoint>,
}

impl Ring {
    pub(super) fn new(step: Duration, span: Duration) -> Self {
        Self {
            step,
            capacity: steps_in(span, step),
            points: VecDeque::new(),
            recorded: 0,
            until: None,
            last_counters: None,
        }
    }

    /// Counters at the time of the latest point.
    pub(super) fn last_counters(&self) -> Option<&CounterSnapshot> {
        self.last_counters.as_ref()
    }

    /// Adds the points that have become complete.
    pub(super) fn record(&mut self, counters: &CounterSnapshot, now: Timestamp) {
        if let Some(previous) = &self.last_counters {
            // A call that is a little early completes its step, too.
            let elapsed = counters.at.saturating_duration_since(previous.at) + STEP / 2;
            let steps = steps_in(elapsed, self.step);
            if steps == 0 {
                return;
            }
            // After missed calls, all that is known of a step is the mean.
            let point = counters.since(previous);
            for _ in 0..steps.min(self.capacity) {
                if self.points.len() == self.capacity {
                    self.points.pop_front();
                }
                self.points.push_back(point);
            }
            self.recorded += steps;
        }
        self.until = Some(now);
        self.last_counters = Some(counters.clone());
    }

    /// Returns the points of the last `span`. If they are too many, each stands for several.
    pub(super) fn series(&self, span: Duration) -> HistorySeries {
        let wanted = steps_in(span, self.step).min(self.points.len());
        let group = wanted.div_ceil(MAX_POINTS).max(1);
        // A group begins at the same point for each reader, so that it does not change.
        let unfinished = self.recorded % group;
        let end = self.points.len() - unfinished;
        let start = end - wanted.min(end) / group * group;
        let points: Vec<HistoryPoint> = self.points.range(start..end).copied().collect();
        let ago = self.step * unfinished as u32;
        HistorySeries {
            step: self.step * group as u32,
            until: self.until.map(|until| until.before(ago)),
            points: points.chunks(group).map(HistoryPoint::merge).collect(),
        }
    }
}

fn steps_in(span: Duration, step: Duration) -> usize {
    usize::try_from(span.as_millis() / step.as_millis()).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::super::{GAUGE_COUNT, LatencyHistogram, RATE_COUNT};
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const MINUTE: Duration = Duration::from_secs(60);

    /// A ring that sees the number of calls `calls` at each of these milliseconds.
    fn ring(step: Duration, span: Duration, calls: impl IntoIterator<Item = (u64, u64)>) -> Ring {
        let began = Instant::now();
        let mut ring = Ring::new(step, span);
        for (millis, calls) in calls {
            let mut rates = [0; RATE_COUNT];
            rates[0] = calls;
            let counters = CounterSnapshot {
                at: began + Duration::from_millis(millis),
                rates,
                gauges: [f32::NAN; GAUGE_COUNT],
                times: LatencyHistogram::default(),
            };
            ring.record(&counters, Timestamp::from_micros(1_000 * millis));
        }
        ring
    }

    fn calls(series: &HistorySeries) -> Vec<f64> {
        let points = series.points.iter();
        points.map(|point| point.shown(0).unwrap()).collect()
    }

    #[test]
    fn a_point_is_added_when_its_step_is_over() {
        let at = [(0, 0), (990, 99), (2_010, 303), (2_300, 999), (3_000, 501)];
        let series = ring(SECOND, MINUTE, at).series(MINUTE);
        assert_eq!(calls(&series), [100.0, 200.0, 200.0]);
        assert_eq!(series.until, Some(Timestamp::from_micros(3_000_000)));
        let seconds = (0..=25).map(|second| (1_000 * second, 10 * second));
        let series = ring(10 * SECOND, MINUTE, seconds).series(MINUTE);
        assert_eq!(calls(&series), [10.0, 10.0]);
        assert_eq!(series.until, Some(Timestamp::from_micros(20_000_000)));
    }

    #[test]
    fn missed_calls_leave_the_mean() {
        let at = [(0, 0), (1_000, 10), (5_000, 50), (6_000, 50)];
        let series = ring(SECOND, MINUTE, at).series(MINUTE);
        assert_eq!(calls(&series), [10.0, 10.0, 10.0, 10.0, 10.0, 0.0]);
        let asleep = ring(SECOND, MINUTE, [(0, 0), (999_000_000, 0)]);
        assert_eq!(asleep.series(MINUTE).points.len(), 60);
    }

    #[test]
    fn many_points_are_shown_in_groups_that_do_not_change() {
        let day = 24 * 60 * MINUTE;
        let minutes = |last| (0..=last).map(|minute| (60_000 * minute, 60 * minute * minute));
        let full = ring(MINUTE, day, minutes(1_602)).series(day);
        assert_eq!((full.step, full.points.len()), (4 * MINUTE, 359));
        assert_eq!(full.until, Some(Timestamp::from_micros(1_600 * 60_000_000)));
        let later = ring(MINUTE, day, minutes(1_604)).series(day);
        assert_eq!(later.points.len(), 360);
        assert_eq!(calls(&full), calls(&later)[..359]);
        let hours = ring(MINUTE, day, minutes(361)).series(day);
        assert_eq!((hours.step, hours.points.len()), (2 * MINUTE, 180));
        let few = ring(MINUTE, day, minutes(3)).series(day);
        assert_eq!((few.step, calls(&few)), (MINUTE, vec![1.0, 3.0, 5.0]));
        assert!(ring(MINUTE, day, []).series(day).points.is_empty());
    }
}
