//! Units that jobs have in their counters.

use std::sync::Arc;

use hashbrown::HashMap;
use smallvec::SmallVec;

use crate::model::{Seconds, Window};
use crate::store::{Charge, CounterChange};

/// The units of a number of jobs, with the counters and windows that they were charged to.
///
/// Dropped permits count as used. [`crate::Limiter::refund`] consumes permits, so that no unit is
/// refunded twice.
#[derive(Debug, Default)]
pub struct Permits {
    times: u32,
    charges: SmallVec<[JobCharge; 1]>,
}

/// Hits that jobs were charged in one counter.
#[derive(Debug, Clone)]
pub(super) struct JobCharge {
    pub(super) counter: Arc<OwnedCounter>,
    /// The hits of one job.
    pub(super) hits: u64,
    /// Number of charged jobs. A quota may have charged fewer than other quotas.
    pub(super) times: u32,
}

/// A counter that outlives the call in which it was charged.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct OwnedCounter {
    pub(super) key: Box<[u8]>,
    pub(super) window: Window,
}

impl Permits {
    pub(super) fn new(times: u32, charges: SmallVec<[JobCharge; 1]>) -> Self {
        Self { times, charges }
    }

    /// Returns the number of jobs that have their units.
    #[must_use]
    pub fn times(&self) -> u32 {
        self.times
    }

    /// Removes and returns the units of `times` jobs, or of all if there are fewer.
    #[must_use]
    pub fn split_off(&mut self, times: u32) -> Self {
        let times = times.min(self.times);
        self.times -= times;
        let mut charges = self.charges.clone();
        for (kept, removed) in self.charges.iter_mut().zip(&mut charges) {
            kept.times = kept.times.min(self.times);
            removed.times -= kept.times;
        }
        Self { times, charges }
    }
}

/// Hits to refund, by counter.
#[derive(Debug, Default)]
pub(super) struct Refunds(HashMap<Arc<OwnedCounter>, u64>);

impl Refunds {
    /// Adds the units whose window has not ended.
    pub(super) fn add(&mut self, permits: Permits, now: Seconds) {
        for charge in permits.charges {
            if charge.counter.window.end() > now {
                self.add_hits(
                    charge.counter,
                    charge.hits.saturating_mul(charge.times.into()),
                );
            }
        }
    }

    pub(super) fn add_hits(&mut self, counter: Arc<OwnedCounter>, hits: u64) {
        if hits > 0 {
            let sum = self.0.entry(counter).or_default();
            *sum = sum.saturating_add(hits);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the charges that refund the hits, for counters that live as long as `time_to_live`
    /// says.
    pub(super) fn charges(&self, time_to_live: impl Fn(Window) -> u32) -> Vec<Charge<'_>> {
        self.0
            .iter()
            .map(|(counter, hits)| Charge {
                key: &counter.key,
                hits: i64::try_from(*hits).unwrap_or(i64::MAX),
                change: CounterChange::Refund,
                window: counter.window,
                time_to_live: time_to_live(counter.window),
                // A refund creates no counter, so its limit is not needed.
                requests_per_unit: 0,
                limit: 0,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Unit;

    fn counter(key: &str) -> Arc<OwnedCounter> {
        Arc::new(OwnedCounter {
            key: key.as_bytes().into(),
            window: Window::containing(Unit::Minute, Seconds(0)),
        })
    }

    /// Jobs, and for each counter the jobs that are charged to it.
    fn outline(permits: &Permits) -> (u32, Vec<u32>) {
        (
            permits.times,
            permits.charges.iter().map(|charge| charge.times).collect(),
        )
    }

    #[test]
    fn parts_add_up_to_the_whole() {
        let charge = |key, times| JobCharge {
            counter: counter(key),
            hits: 3,
            times,
        };
        // The quota "b" was charged for 2 of the 5 jobs.
        let mut permits = Permits::new(5, [charge("a", 5), charge("b", 2)].into_iter().collect());
        for (times, part, rest) in [
            (0, (0, vec![0, 0]), (5, vec![5, 2])),
            (2, (2, vec![2, 0]), (3, vec![3, 2])),
            (2, (2, vec![2, 1]), (1, vec![1, 1])),
            (9, (1, vec![1, 1]), (0, vec![0, 0])),
            (1, (0, vec![0, 0]), (0, vec![0, 0])),
        ] {
            let split = permits.split_off(times);
            assert_eq!(
                (outline(&split), outline(&permits)),
                (part, rest),
                "{times}"
            );
        }
    }

    #[test]
    fn what_goes_back_to_one_counter_goes_at_once_and_not_after_its_window() {
        let permits = |key, times| {
            Permits::new(
                times,
                [JobCharge {
                    counter: counter(key),
                    hits: 3,
                    times,
                }]
                .into_iter()
                .collect(),
            )
        };
        let mut returns = Refunds::default();
        returns.add(permits("a", 2), Seconds(59));
        returns.add(permits("a", 1), Seconds(59));
        returns.add(permits("b", 1), Seconds(60));
        returns.add(permits("c", 0), Seconds(0));
        let charges = returns.charges(|_| 60);
        let outline: Vec<_> = charges
            .iter()
            .map(|charge| (charge.key, charge.hits, charge.change))
            .collect();
        assert_eq!(outline, [(&b"a"[..], 9, CounterChange::Refund)]);
    }
}
