//! Calls by the whole milliseconds that they took: what timers of statsd and mapped histograms are made of.
//!
//! Up to 1,023 ms each millisecond has its class, above that classes are 1/128 of their time wide. So a core keeps 18 KiB for a method,
//! whatever the number of calls.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Milliseconds below this have a class each: calls wait for the store for a second at most unless told otherwise.
const EXACT: u64 = 1 << 10;
/// Classes for each doubling above.
const STEPS: u64 = 1 << 7;
/// Doublings above: the last class begins at about 17 minutes.
const DOUBLINGS: u64 = 10;
const CLASSES: usize = (EXACT + DOUBLINGS * STEPS) as usize;

/// Calls by class; empty as long as nobody counted any.
pub(in crate::operate) type Times = Vec<u64>;

/// Calls by class, which one core adds to and others read.
#[derive(Debug)]
pub(super) struct SharedTimes(Box<[AtomicU64]>);

impl Default for SharedTimes {
    fn default() -> Self {
        Self(std::iter::repeat_with(AtomicU64::default).take(CLASSES).collect())
    }
}

impl SharedTimes {
    pub(super) fn observe(&self, millis: u64) {
        self.0[class(millis)].fetch_add(1, Relaxed);
    }

    pub(super) fn add_to(&self, sum: &mut Times) {
        sum.resize(CLASSES, 0);
        for (sum, count) in sum.iter_mut().zip(&self.0) {
            *sum += count.load(Relaxed);
        }
    }
}

fn class(millis: u64) -> usize {
    if millis < EXACT {
        return millis as usize;
    }
    let doubling = u64::from(millis.ilog2() - EXACT.ilog2());
    if doubling >= DOUBLINGS {
        return CLASSES - 1;
    }
    let step = (millis >> (millis.ilog2() - STEPS.ilog2())) - STEPS;
    (EXACT + doubling * STEPS + step) as usize
}

/// The shortest time of a class.
pub(in crate::operate) fn millis(class: usize) -> u64 {
    let class = class as u64;
    match class.checked_sub(EXACT) {
        None => class,
        Some(above) => (STEPS + above % STEPS) << (above / STEPS + u64::from(EXACT.ilog2() - STEPS.ilog2())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_holds_its_shortest_time_and_times_up_to_a_128th_longer() {
        assert!((0..CLASSES).all(|at| class(millis(at)) == at));
        for time in (0..5_000).chain([123_456, 1_000_000]) {
            let told = millis(class(time));
            assert!(told <= time && time - told <= time / STEPS, "{time}: {told}");
            assert!(time >= EXACT || told == time, "{time}: {told}");
        }
        assert_eq!(class(u64::MAX), CLASSES - 1);
    }
}
