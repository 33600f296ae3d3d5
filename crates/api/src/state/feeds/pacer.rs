//! Limits the rate of updates, whatever the number of readers and their workflows. Updates leave
//! most of the processor time to other requests.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use crate::http::lock;

/// Shortest time between two texts. A text takes some 25 us of a processor, so 2,000 a second are 5
/// %.
const MIN_SEND_INTERVAL: Duration = Duration::from_micros(500);
/// Bytes in a second for all readers in all: some 5 % of a processor, too.
const BYTES_PER_SECOND: f64 = (32 << 20) as f64;

/// Times at which the next text may be sent.
#[derive(Debug)]
pub(crate) struct SendPacer {
    small: Mutex<Instant>,
    /// Time for large texts, which take longer than one interval. Small texts do not wait for them.
    large: Mutex<Instant>,
}

impl Default for SendPacer {
    fn default() -> Self {
        let now = || Mutex::new(Instant::now());
        Self {
            small: now(),
            large: now(),
        }
    }
}

impl SendPacer {
    /// Returns the time at which a reader may get a text of this number of bytes: now, if no other
    /// reader waits.
    pub(super) fn reserve(&self, bytes: usize, now: Instant) -> Instant {
        let duration = Duration::from_secs_f64(bytes as f64 / BYTES_PER_SECOND);
        let next = if duration <= MIN_SEND_INTERVAL {
            &self.small
        } else {
            &self.large
        };
        let mut next = lock(next);
        let send_at = now.max(*next);
        *next = send_at + duration.max(MIN_SEND_INTERVAL);
        send_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_is_alone_does_not_wait_and_many_wait_for_each_other() {
        let pace = SendPacer::default();
        let now = Instant::now() + Duration::from_secs(1);
        assert_eq!(pace.reserve(100, now), now);
        let last = (1..1_000).map(|_| pace.reserve(100, now)).max().unwrap();
        assert_eq!(last - now, 999 * MIN_SEND_INTERVAL);
        assert_eq!(
            pace.reserve(8 << 20, now),
            now,
            "those who read much are others"
        );
        assert_eq!(pace.reserve(8 << 20, now) - now, Duration::from_millis(250));
        assert_eq!(
            pace.reserve(100, now + Duration::from_secs(1)),
            now + Duration::from_secs(1)
        );
    }
}
