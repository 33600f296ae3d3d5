//! Rates of each limit in the last day, kept in a bounded number of points.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use hashbrown::HashMap;

use super::super::config_status::LimitUse;
use super::limit_rates::LIMIT_RATES_STEP;

/// Limits of a larger configuration that have series. With room for 320 points of 12 bytes in the
/// rings of each, they take 2 MB.
const MAX_LIMITS: usize = 512;
/// Points of ten seconds, of a minute and of a quarter of an hour.
const SCALES: [Scale; 3] = [Scale::new(1, 90), Scale::new(6, 60), Scale::new(90, 4 * 24)];
/// Readings after a longer pause say nothing about its steps.
const MAX_MISSED_STEPS: u32 = 90;

/// Width of the points of a ring in steps of ten seconds, and their largest number.
#[derive(Debug, Clone, Copy)]
struct Scale {
    width: usize,
    capacity: usize,
}

/// Part of the points to read.
#[derive(Debug, Clone, Copy)]
pub(super) struct LatestPoints {
    /// Index in [`SCALES`].
    scale: usize,
    most: usize,
}

/// Rates of a limit in one step. They are NaN if they are not known.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LimitPoint {
    /// Hits a second.
    pub(crate) hits: f32,
    /// Hits near the end of the limit.
    pub(crate) near: f32,
    /// Hits that were refused.
    pub(crate) refused: f32,
}

/// Points of the limits of one configuration.
#[derive(Debug, Default)]
pub(super) struct LimitSeries {
    /// Limits in the order of the configuration.
    limits: Vec<LimitRings>,
    /// Number of steps since the first reading: it says where longer steps begin.
    steps: usize,
    /// Time of the latest reading.
    until: Option<Instant>,
}

#[derive(Debug)]
struct LimitRings {
    rule: Box<str>,
    /// Counts of the latest reading.
    last_use: Option<LimitUse>,
    /// Points of each of [`SCALES`], the oldest first. All rings of a scale end at the same time.
    rings: [VecDeque<LimitPoint>; SCALES.len()],
}

/// Series of some limits with points of equal width, all of them complete.
#[derive(Debug)]
pub(crate) struct SeriesInRange {
    pub(crate) step: Duration,
    /// Time since the end of the last step. `None` before there is a step.
    pub(crate) age: Option<Duration>,
    /// Limits that are known.
    pub(crate) limits: Vec<RuleSeries>,
}

/// Points of one limit, the oldest first.
#[derive(Debug)]
pub(crate) struct RuleSeries {
    pub(crate) rule: Box<str>,
    pub(crate) points: Vec<LimitPoint>,
}

impl Scale {
    const fn new(width: usize, capacity: usize) -> Self {
        Self { width, capacity }
    }
}

impl LatestPoints {
    pub(super) const FIVE_MINUTES: Self = Self { scale: 0, most: 30 };
    pub(super) const QUARTER_HOUR: Self = Self::all(0);
    pub(super) const HOUR: Self = Self::all(1);
    pub(super) const DAY: Self = Self::all(2);

    const fn all(scale: usize) -> Self {
        Self {
            scale,
            most: SCALES[scale].capacity,
        }
    }
}

impl LimitPoint {
    const UNKNOWN: Self = Self {
        hits: f32::NAN,
        near: f32::NAN,
        refused: f32::NAN,
    };

    /// Returns the rates between two readings.
    fn between(then: &LimitUse, now: &LimitUse, seconds: f32) -> Self {
        let refused = |counts: &LimitUse| counts.over_limit.saturating_sub(counts.shadow_mode);
        // The counts of a limit may start again at 0.
        let rate = |now: u64, then: u64| now.saturating_sub(then) as f32 / seconds;
        Self {
            hits: rate(now.hits, then.hits),
            near: rate(now.near_limit, then.near_limit),
            refused: rate(refused(now), refused(then)),
        }
    }

    /// Returns the means of what is known.
    fn mean<'p>(points: impl Iterator<Item = &'p Self> + Clone) -> Self {
        let mean = |value: fn(&Self) -> f32| {
            let known = points.clone().map(value).filter(|value| !value.is_nan());
            known.clone().sum::<f32>() / known.count() as f32
        };
        Self {
            hits: mean(|point| point.hits),
            near: mean(|point| point.near),
            refused: mean(|point| point.refused),
        }
    }
}

impl LimitSeries {
    /// Keeps the limits that are in the new configuration, too.
    pub(super) fn change_rules<'r>(&mut self, rules: impl Iterator<Item = &'r str>) {
        let before = self.limits.drain(..);
        let mut before: HashMap<Box<str>, LimitRings> =
            before.map(|limit| (limit.rule.clone(), limit)).collect();
        self.limits = rules
            .take(MAX_LIMITS)
            .map(|rule| before.remove(rule).unwrap_or_else(|| LimitRings::new(rule)))
            .collect();
    }

    /// Adds the steps that have become complete. `uses` are of the limits in their order.
    pub(super) fn record(&mut self, uses: &[LimitUse], at: Instant) {
        let elapsed = self.until.map_or(Duration::ZERO, |until| at - until);
        // A reading that is a little early completes its step, too.
        let steps = elapsed.as_secs_f32() / LIMIT_RATES_STEP.as_secs_f32();
        let steps = steps.round() as u32;
        if self.until.is_some() && steps == 0 {
            return;
        }
        self.until = Some(at);
        let first_step = self.steps + 1;
        self.steps += steps as usize;
        for (limit, now) in self.limits.iter_mut().zip(uses) {
            let Some(then) = limit.last_use.replace(*now) else {
                continue;
            };
            if steps > MAX_MISSED_STEPS {
                limit.rings = Default::default();
                continue;
            }
            let point = LimitPoint::between(&then, now, elapsed.as_secs_f32());
            (first_step..=self.steps).for_each(|step| limit.push(point, step));
        }
    }

    pub(super) fn latest(&self, wanted: LatestPoints, rules: &[String]) -> SeriesInRange {
        let LatestPoints { scale, most } = wanted;
        let width = SCALES[scale].width;
        let count = most.min(self.steps / width);
        let known = |rule: &String| self.limits.iter().find(|limit| *limit.rule == **rule);
        let limits = rules.iter().filter_map(known).map(|limit| RuleSeries {
            rule: limit.rule.clone(),
            points: limit.latest(scale, count),
        });
        let unfinished = LIMIT_RATES_STEP * (self.steps % width) as u32;
        SeriesInRange {
            step: LIMIT_RATES_STEP * width as u32,
            age: self.until.map(|until| until.elapsed() + unfinished),
            limits: limits.collect(),
        }
    }
}

impl LimitRings {
    fn new(rule: &str) -> Self {
        Self {
            rule: rule.into(),
            last_use: None,
            rings: Default::default(),
        }
    }

    /// Adds the point of a step.
    fn push(&mut self, point: LimitPoint, step: usize) {
        for (index, scale) in SCALES.iter().enumerate() {
            if !step.is_multiple_of(scale.width) {
                continue;
            }
            let steps = &self.rings[0];
            let start = steps.len().saturating_sub(scale.width);
            let point = if index == 0 {
                point
            } else {
                LimitPoint::mean(steps.range(start..))
            };
            let ring = &mut self.rings[index];
            if ring.len() == scale.capacity {
                ring.pop_front();
            }
            ring.push_back(point);
        }
    }

    /// Returns the latest points. Those before the limit was known are unknown.
    fn latest(&self, scale: usize, count: usize) -> Vec<LimitPoint> {
        let ring = &self.rings[scale];
        let known = ring.len().min(count);
        let mut points = vec![LimitPoint::UNKNOWN; count - known];
        points.extend(ring.range(ring.len() - known..));
        points
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts after a number of seconds: ten hits in each, of which two are near and one is refused.
    fn counts(seconds: u64) -> LimitUse {
        LimitUse {
            hits: 10 * seconds,
            near_limit: 2 * seconds,
            over_limit: 3 * seconds,
            shadow_mode: 2 * seconds,
            ..LimitUse::default()
        }
    }

    fn hits(series: &LimitSeries, points: LatestPoints, rule: &str) -> Vec<Option<f32>> {
        let shown = series.latest(points, &[rule.to_owned()]);
        let points = shown.limits.into_iter().flat_map(|limit| limit.points);
        points
            .map(|point| Some(point.hits).filter(|hits| !hits.is_nan()))
            .collect()
    }

    #[test]
    fn a_day_is_kept_in_three_widths() {
        let mut series = LimitSeries::default();
        series.change_rules(["a"].into_iter());
        let began = Instant::now();
        for second in (0..=2 * 24 * 3_600).step_by(10) {
            series.record(&[counts(second)], began + Duration::from_secs(second));
        }
        for (wanted, points, seconds) in [
            (LatestPoints::FIVE_MINUTES, 30, 10),
            (LatestPoints::QUARTER_HOUR, 90, 10),
            (LatestPoints::HOUR, 60, 60),
            (LatestPoints::DAY, 96, 900),
        ] {
            let shown = series.latest(wanted, &["a".to_owned(), "unknown".to_owned()]);
            assert_eq!(shown.step, Duration::from_secs(seconds));
            assert_eq!(shown.limits.len(), 1);
            let limit = &shown.limits[0];
            assert_eq!(limit.points.len(), points);
            for point in &limit.points {
                assert_eq!((point.hits, point.near, point.refused), (10.0, 2.0, 1.0));
            }
        }
    }

    #[test]
    fn what_is_not_known_is_a_gap() {
        const FIVE_MINUTES: LatestPoints = LatestPoints::FIVE_MINUTES;
        const HOUR: LatestPoints = LatestPoints::HOUR;
        const DAY: LatestPoints = LatestPoints::DAY;
        let mut series = LimitSeries::default();
        let began = Instant::now();
        let record = |series: &mut LimitSeries, second, limits| {
            let at = began + Duration::from_secs(second);
            series.record(&vec![counts(second); limits], at);
        };
        series.change_rules(["a"].into_iter());
        record(&mut series, 0, 1);
        assert!(series.latest(HOUR, &[]).age.is_some());
        assert_eq!(hits(&series, FIVE_MINUTES, "a"), []);
        record(&mut series, 10, 1);
        record(&mut series, 11, 1);
        series.change_rules(["b", "a"].into_iter());
        for second in [20, 30, 49, 60, 70] {
            record(&mut series, second, 2);
        }
        assert_eq!(hits(&series, FIVE_MINUTES, "a"), [Some(10.0); 7]);
        let of_new = [vec![None; 2], vec![Some(10.0); 5]].concat();
        assert_eq!(hits(&series, FIVE_MINUTES, "b"), of_new);
        assert_eq!(
            hits(&series, HOUR, "b"),
            [Some(10.0)],
            "the seventh step is not over"
        );
        record(&mut series, 70 + 24 * 3_600, 2);
        assert_eq!(hits(&series, FIVE_MINUTES, "a"), [None; 30]);
        record(&mut series, 80 + 24 * 3_600, 2);
        assert_eq!(hits(&series, FIVE_MINUTES, "a")[28..], [None, Some(10.0)]);
        assert_eq!(hits(&series, DAY, "a"), [None; 96]);
        series.change_rules(["b"].into_iter());
        assert_eq!(hits(&series, DAY, "a"), []);
    }

    #[test]
    fn the_number_of_limits_is_bounded() {
        let mut series = LimitSeries::default();
        let rules: Vec<String> = (0..=MAX_LIMITS).map(|at| at.to_string()).collect();
        series.change_rules(rules.iter().map(String::as_str));
        let known = series.latest(LatestPoints::HOUR, &rules).limits;
        assert_eq!(known.len(), MAX_LIMITS);
    }
}
