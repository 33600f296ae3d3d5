//! Percentiles of durations, from buckets whose width grows with the duration.

use std::time::Duration;

/// Buckets for each doubling. A percentile is off by an eighth at most.
const EACH: u32 = 4;
/// Number of buckets, up to half a minute.
const BUCKETS: usize = 100;

/// Histogram of the durations of calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Times([u64; BUCKETS]);

impl Default for Times {
    fn default() -> Self {
        Self([0; BUCKETS])
    }
}

impl Times {
    /// Number of buckets.
    pub const BUCKETS: usize = BUCKETS;

    /// Returns the bucket of a duration.
    #[must_use]
    pub fn bucket(microseconds: u64) -> usize {
        let least = microseconds.max(u64::from(EACH));
        let doublings = least.ilog2() - EACH.ilog2();
        let part = (least >> doublings) - u64::from(EACH);
        let bucket = u64::from(doublings * EACH) + part;
        usize::try_from(bucket)
            .unwrap_or(usize::MAX)
            .min(BUCKETS - 1)
    }

    /// Adds a number of calls to a bucket.
    pub fn add(&mut self, bucket: usize, calls: u64) {
        self.0[bucket] += calls;
    }

    /// Returns the calls that were added since.
    pub(super) fn since(&self, before: &Self) -> Self {
        let mut more = self.clone();
        for (now, then) in more.0.iter_mut().zip(&before.0) {
            *now = now.saturating_sub(*then);
        }
        more
    }

    /// Returns the duration within which this share of the calls ended: the middle of its bucket.
    /// `None` if there were no calls.
    pub(super) fn percentile(&self, share: f64) -> Option<Duration> {
        let all: u64 = self.0.iter().sum();
        let wanted = ((all as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        let at = self.0.iter().position(|calls| {
            seen += calls;
            seen >= wanted
        })?;
        let doublings = at as u32 / EACH;
        let part = u64::from(at as u32 % EACH + EACH);
        let middle = ((2 * part + 1) << doublings) / 2;
        Some(Duration::from_micros(middle))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_in_the_bucket_of_its_time() {
        for micros in [
            0, 1, 4, 5, 7, 8, 9, 100, 250, 999, 1_000, 16_383, 16_384, 1_000_000, 20_000_000,
        ] {
            let mut times = Times::default();
            times.add(Times::bucket(micros), 10);
            let found = times.percentile(0.5).unwrap().as_micros() as f64;
            let wanted = (micros as f64).max(4.0);
            assert!((found - wanted).abs() <= wanted / 7.0, "{micros}: {found}");
        }
        assert_eq!(Times::bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn the_99th_is_above_99_of_100() {
        let mut times = Times::default();
        assert_eq!(times.percentile(0.5), None);
        times.add(Times::bucket(100), 99);
        times.add(Times::bucket(10_000), 1);
        let micros = |share| times.percentile(share).unwrap().as_micros();
        assert_eq!((micros(0.5), micros(0.99)), (micros(0.01), micros(0.5)));
        assert!(
            micros(0.99) < 120 && micros(1.0) > 8_000,
            "{} and {}",
            micros(0.99),
            micros(1.0)
        );
        let mut more = times.clone();
        more.add(Times::bucket(1_000_000), 5);
        assert!(more.since(&times).percentile(0.5).unwrap().as_millis() > 900);
    }
}
