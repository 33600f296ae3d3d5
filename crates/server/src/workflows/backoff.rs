//! Back-off between attempts, and throttling of log lines, during repeated failures.

use std::time::Duration;

use tokio::time::Instant;

/// Wait after the first failure.
const MIN_BACKOFF: Duration = Duration::from_millis(50);
/// Longest wait. A recovered store is noticed within this time.
const MAX_BACKOFF: Duration = Duration::from_secs(1);
/// Minimum interval between two log lines about one problem.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Exponential back-off. Each wait is random between half of its limit and the limit.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// Returns the wait before the next attempt.
    pub(super) fn next(&mut self) -> Duration {
        let whole = MIN_BACKOFF
            .saturating_mul(1 << self.failures.min(10))
            .min(MAX_BACKOFF);
        self.failures = self.failures.saturating_add(1);
        whole.mul_f64(0.5 + fastrand::f64() / 2.0)
    }
}

/// Throttle that allows one log line per minute, and counts the events that it stands for.
#[derive(Debug, Default)]
pub(super) struct EventLogThrottle {
    last: Option<Instant>,
    count: u64,
}

impl EventLogThrottle {
    /// Counts `number` events. If a log line is allowed, returns the number of events since the
    /// last one.
    pub(super) fn add(&mut self, number: u64) -> Option<u64> {
        self.count += number;
        let now = Instant::now();
        if self.count == 0 || self.last.is_some_and(|last| now - last < LOG_INTERVAL) {
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_second_and_are_random() {
        let mut patience = Backoff::default();
        let waits: Vec<Duration> = (0..100).map(|_| patience.next()).collect();
        assert!(
            waits[0] >= MIN_BACKOFF / 2 && waits[0] <= MIN_BACKOFF,
            "{waits:?}"
        );
        assert!(
            waits[10..]
                .iter()
                .all(|wait| (MAX_BACKOFF / 2..=MAX_BACKOFF).contains(wait)),
            "{waits:?}"
        );
        assert!(
            waits[10..].windows(2).any(|pair| pair[0] != pair[1]),
            "{waits:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_a_minute_says_how_many_it_stands_for() {
        let mut lines = EventLogThrottle::default();
        assert_eq!(lines.add(0), None);
        assert_eq!(lines.add(3), Some(3));
        assert_eq!((lines.add(4), lines.add(5)), (None, None));
        tokio::time::advance(LOG_INTERVAL).await;
        assert_eq!(lines.add(0), Some(9));
        assert_eq!(lines.add(0), None);
    }
}
