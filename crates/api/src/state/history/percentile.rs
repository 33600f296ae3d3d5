//! Percentiles of durations, from buckets whose width grows with the duration.

use std::time::Duration;

/// Buckets for each doubling. A percentile is off by an eighth at most.
const BUCKETS_PER_DOUBLING: u32 = 4;
/// Number of buckets, up to half a minute.
const BUCKETS: usize = 100;

/// Histogram of the durations of calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LatencyHistogram([u64; BUCKETS]);

impl Default for LatencyHistogram {
    fn default() -> Self {
        Self([0; BUCKETS])
    }
}

impl LatencyHistogram {
    /// Number of buckets.
    pub const BUCKETS: usize = BUCKETS;

    /// Returns the bucket of a duration.
    #[must_use]
    pub fn bucket(microseconds: u64) -> usize {
        let clamped = microseconds.max(u64::from(BUCKETS_PER_DOUBLING));
        let doublings = clamped.ilog2() - BUCKETS_PER_DOUBLING.ilog2();
        let quarter = (clamped >> doublings) - u64::from(BUCKETS_PER_DOUBLING);
        let bucket = u64::from(doublings * BUCKETS_PER_DOUBLING) + quarter;
        usize::try_from(bucket)
            .unwrap_or(usize::MAX)
            .min(BUCKETS - 1)
    }

    /// Adds a number of calls to a bucket.
    pub fn add(&mut self, bucket: usize, calls: u64) {
        self.0[bucket] += calls;
    }

    /// Returns the calls that were added since.
    pub(super) fn since(&self, previous: &Self) -> Self {
        let mut added = self.clone();
        for (now, then) in added.0.iter_mut().zip(&previous.0) {
            *now = now.saturating_sub(*then);
        }
        added
    }

    /// Returns the duration within which this share of the calls ended: the middle of its bucket.
    /// `None` if there were no calls.
    pub(crate) fn percentile(&self, share: f64) -> Option<Duration> {
        let all: u64 = self.0.iter().sum();
        let rank = ((all as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        let at = self.0.iter().position(|calls| {
            seen += calls;
            seen >= rank
        })?;
        let doublings = at as u32 / BUCKETS_PER_DOUBLING;
        let quarter = u64::from(at as u32 % BUCKETS_PER_DOUBLING + BUCKETS_PER_DOUBLING);
        let middle = ((2 * quarter + 1) << doublings) / 2;
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
            let mut times = LatencyHistogram::default();
            times.add(LatencyHistogram::bucket(micros), 10);
            let found = times.percentile(0.5).unwrap().as_micros() as f64;
            let wanted = (micros as f64).max(4.0);
            assert!((found - wanted).abs() <= wanted / 7.0, "{micros}: {found}");
        }
        assert_eq!(LatencyHistogram::bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn the_99th_is_above_99_of_100() {
        let mut times = LatencyHistogram::default();
        assert_eq!(times.percentile(0.5), None);
        times.add(LatencyHistogram::bucket(100), 99);
        times.add(LatencyHistogram::bucket(10_000), 1);
        let micros = |share| times.percentile(share).unwrap().as_micros();
        assert_eq!((micros(0.5), micros(0.99)), (micros(0.01), micros(0.5)));
        assert!(
            micros(0.99) < 120 && micros(1.0) > 8_000,
            "{} and {}",
            micros(0.99),
            micros(1.0)
        );
        let mut more = times.clone();
        more.add(LatencyHistogram::bucket(1_000_000), 5);
        assert!(more.since(&times).percentile(0.5).unwrap().as_millis() > 900);
    }
}
