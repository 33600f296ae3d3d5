//! Limits how fast a process opens connections, over all of its nodes.

use std::fmt;
use std::num::NonZero;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// Rate of new connections: a burst at once, then a fixed number a second. Clones share one
/// allowance, so all clients of clones of one [`Config`](crate::Config) do: one allowance for the
/// process.
///
/// Each node opens one connection at a time, with longer delays after each failure. This bound
/// covers all nodes, for the moment when a whole cluster or a proxy comes back.
#[derive(Clone)]
pub struct ConnectPace {
    interval: Duration,
    burst: u32,
    full_at: Arc<Mutex<Option<Instant>>>,
}

impl ConnectPace {
    /// Creates a limit of `burst` connects at once, and `per_second` each second after that.
    #[must_use]
    pub fn new(per_second: NonZero<u32>, burst: NonZero<u32>) -> Self {
        let interval = Duration::from_secs(1) / per_second.get();
        Self {
            interval,
            burst: burst.get(),
            full_at: Arc::default(),
        }
    }

    /// Waits until the next connect may begin.
    ///
    /// # Cancellation
    /// The permit is lost: later callers wait as if it had been used.
    pub(crate) async fn permit(&self) {
        let now = Instant::now();
        let begin = self.reserve(now);
        if begin > now {
            sleep_until(begin).await;
        }
    }

    /// Reserves the next permit, and returns the time from which it may be used.
    fn reserve(&self, now: Instant) -> Instant {
        let mut full_at = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        // A token bucket, stored as the moment at which it will be full again. Each permit moves
        // that moment by one interval. A permit may be used when at most one whole bucket is
        // missing.
        let next = full_at.map_or(now, |at| at.max(now)) + self.interval;
        *full_at = Some(next);
        now.max(next.checked_sub(self.interval * self.burst).unwrap_or(now))
    }
}

impl Default for ConnectPace {
    /// 100 a second, after 100 at once: a TLS handshake costs either side about a millisecond, so
    /// connecting takes at most a tenth of a core from answering. Ten nodes from ten cores are back
    /// at once, and a hundred from eight within ten seconds.
    fn default() -> Self {
        let hundred = NonZero::new(100).expect("100 is not 0");
        Self::new(hundred, hundred)
    }
}

impl fmt::Debug for ConnectPace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectPace")
            .field("interval", &self.interval)
            .field("burst", &self.burst)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reserves permits at the given milliseconds, and compares the wait of each, in milliseconds.
    fn check(per_second: u32, burst: u32, asked: &[u64], waits: &[u64]) {
        let pace = ConnectPace::new(
            NonZero::new(per_second).unwrap(),
            NonZero::new(burst).unwrap(),
        );
        let start = Instant::now() + Duration::from_secs(60);
        let found: Vec<u64> = asked
            .iter()
            .map(|&at| start + Duration::from_millis(at))
            .map(|now| (pace.clone().reserve(now) - now).as_millis() as u64)
            .collect();
        assert_eq!(
            found, waits,
            "{per_second} a second, {burst} at once, asked at {asked:?}"
        );
    }

    #[test]
    fn a_burst_goes_at_once_and_the_rest_at_the_rate() {
        check(10, 3, &[0, 0, 0, 0, 0], &[0, 0, 0, 100, 200]);
        check(10, 1, &[0, 50, 200, 300], &[0, 50, 0, 0]);
        check(100, 1, &[0; 4], &[0, 10, 20, 30]);
    }

    #[test]
    fn quiet_time_refills_no_more_than_one_burst() {
        check(
            10,
            2,
            &[0, 0, 100, 100, 10_000, 10_000, 10_000],
            &[0, 0, 0, 100, 0, 0, 100],
        );
    }
}
