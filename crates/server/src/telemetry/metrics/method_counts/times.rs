//! Calls by response time class, the source of StatsD timers and mapped histograms.
//!
//! A class is at most a hundredth of its time wide. Whole milliseconds up to 1,023 begin classes,
//! so buckets with such bounds are exact. A core keeps 40 KiB for a method, whatever the number of
//! calls.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A range of classes of equal width.
struct ClassRange {
    /// Microseconds at which the range begins and ends.
    begin: u64,
    end: u64,
    /// Width of a class in microseconds.
    width: u64,
    /// Index of the first class in the range.
    first: u64,
}

/// Ranges of classes. The default call timeout is one second, so these ranges cover almost all
/// calls.
const RANGES: [ClassRange; 4] = [
    ClassRange {
        begin: 0,
        end: 1_000,
        width: 1,
        first: 0,
    },
    ClassRange {
        begin: 1_000,
        end: 10_000,
        width: 10,
        first: 1_000,
    },
    ClassRange {
        begin: 10_000,
        end: 100_000,
        width: 100,
        first: 1_900,
    },
    ClassRange {
        begin: 100_000,
        end: EXACT * 1_000,
        width: 1_000,
        first: 2_800,
    },
];
/// Milliseconds above which the width of classes grows with the time.
const EXACT: u64 = 1 << 10;
/// Index of the first class whose width grows with the time.
const FIRST_GROWING: u64 = 3_724;
/// Number of classes per doubling of the time above `EXACT_MILLIS`.
const STEPS: u64 = 1 << 7;
/// Number of doublings above `EXACT_MILLIS`. The last class begins at about 17 minutes.
const DOUBLINGS: u64 = 10;
const CLASSES: usize = (FIRST_GROWING + DOUBLINGS * STEPS) as usize;

/// Number of calls by class; empty until the first call.
pub(in crate::telemetry) type Times = Vec<u64>;

/// Number of calls by class, which one core writes and others read.
#[derive(Debug)]
pub(super) struct SharedTimes(Box<[AtomicU64]>);

impl Default for SharedTimes {
    fn default() -> Self {
        Self(
            std::iter::repeat_with(AtomicU64::default)
                .take(CLASSES)
                .collect(),
        )
    }
}

impl SharedTimes {
    pub(super) fn observe(&self, micros: u64) {
        self.0[class(micros)].fetch_add(1, Relaxed);
    }

    pub(super) fn add_to(&self, sum: &mut Times) {
        sum.resize(CLASSES, 0);
        for (sum, count) in sum.iter_mut().zip(&self.0) {
            *sum += count.load(Relaxed);
        }
    }
}

fn class(micros: u64) -> usize {
    if let Some(range) = RANGES.iter().find(|range| micros < range.end) {
        return (range.first + (micros - range.begin) / range.width) as usize;
    }
    let millis = micros / 1_000;
    let doubling = u64::from(millis.ilog2() - EXACT.ilog2());
    if doubling >= DOUBLINGS {
        return CLASSES - 1;
    }
    let step = (millis >> (millis.ilog2() - STEPS.ilog2())) - STEPS;
    (FIRST_GROWING + doubling * STEPS + step) as usize
}

/// Lower bound of a class in microseconds.
pub(in crate::telemetry) fn micros(class: usize) -> u64 {
    let class = class as u64;
    if let Some(above) = class.checked_sub(FIRST_GROWING) {
        let millis =
            (STEPS + above % STEPS) << (above / STEPS + u64::from(EXACT.ilog2() - STEPS.ilog2()));
        return millis * 1_000;
    }
    let range = RANGES
        .iter()
        .rfind(|range| range.first <= class)
        .expect("the first range begins with class 0");
    range.begin + (class - range.first) * range.width
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_holds_its_shortest_time_and_times_up_to_a_hundredth_longer() {
        assert!((0..CLASSES).all(|at| class(micros(at)) == at));
        assert!((1..CLASSES).all(|at| micros(at) > micros(at - 1)));
        for time in (0..2_000_000).chain([123_456_789, 1_000_000_000]) {
            let told = micros(class(time));
            assert!(told <= time && time - told <= time / 100, "{time}: {told}");
            let millis = time / 1_000;
            assert!(millis >= EXACT || told / 1_000 == millis, "{time}: {told}");
            assert!(time >= 1_000 || told == time, "{time}: {told}");
        }
        assert_eq!(class(u64::MAX), CLASSES - 1);
    }
}
