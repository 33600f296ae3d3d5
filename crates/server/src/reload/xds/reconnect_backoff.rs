//! Delays before the management server is called again.

use std::time::Duration;

use crate::settings::Retries;

/// Lifetime from which a stream was healthy, even without responses. Servers end streams to spread
/// their clients, and may have no changes for hours.
const HEALTHY_LIFETIME: Duration = Duration::from_millis(500);
/// Maximum of the random delay after a healthy stream: the clients of a server that restarts do not
/// reconnect at one moment.
const MAX_PAUSE_AFTER_HEALTHY: Duration = Duration::from_millis(100);

/// The delays, and the number of streams that were lost since the last good one.
#[derive(Debug)]
pub(super) struct ReconnectBackoff {
    retries: Retries,
    lost: u32,
}

/// Whether a stream with this lifetime was healthy.
pub(super) fn is_healthy(lived: Duration) -> bool {
    lived >= HEALTHY_LIFETIME
}

impl ReconnectBackoff {
    pub(super) fn new(retries: Retries) -> Self {
        Self { retries, lost: 0 }
    }

    /// Returns the delay after a failed connect. It does not grow, because an attempt costs an
    /// absent server nothing.
    pub(super) fn unreached(&self) -> Duration {
        self.varied(self.retries.connect)
    }

    /// Returns the delay after a stream that the server ended: a short one if its `lifetime` was
    /// that of a healthy stream.
    pub(super) fn ended(&mut self, lived: Duration) -> Duration {
        if !is_healthy(lived) {
            return self.lost();
        }
        self.reset();
        MAX_PAUSE_AFTER_HEALTHY.mul_f64(fastrand::f64())
    }

    /// Returns the delay after a stream that failed. It doubles with each consecutive failure.
    pub(super) fn lost(&mut self) -> Duration {
        let Retries { first, longest, .. } = self.retries;
        let grown = first
            .saturating_mul(2_u32.saturating_pow(self.lost))
            .min(longest);
        self.lost = self.lost.saturating_add(1);
        self.varied(grown)
    }

    /// Resets the delay to the first one after a good stream.
    pub(super) fn reset(&mut self) {
        self.lost = 0;
    }

    /// Varies a delay by up to the part in the settings: servers that lost one management server do
    /// not reconnect at one moment.
    fn varied(&self, wait: Duration) -> Duration {
        wait.mul_f64(1.0 + self.retries.variation * (2.0 * fastrand::f64() - 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RETRIES: Retries = Retries {
        connect: Duration::from_secs(3),
        first: Duration::from_secs(10),
        longest: Duration::from_secs(60),
        variation: 0.0,
    };

    /// The reference waits 10 s each time, whatever the settings say, and forgets nothing.
    #[test]
    fn waits_double_up_to_the_longest_and_begin_anew_after_a_good_stream() {
        let mut pauses = ReconnectBackoff::new(RETRIES);
        let mut seconds = || (0..5).map(|_| pauses.lost().as_secs()).collect::<Vec<_>>();
        assert_eq!(seconds(), [10, 20, 40, 60, 60]);
        assert_eq!(seconds(), [60; 5]);
        pauses.reset();
        assert_eq!(pauses.lost(), RETRIES.first);
        assert_eq!(pauses.unreached(), RETRIES.connect);
        let mut old = ReconnectBackoff {
            lost: u32::MAX,
            ..pauses
        };
        assert_eq!(old.lost(), RETRIES.longest);
    }

    /// After routine ends of streams without news, a change arrived up to 90 s late.
    #[test]
    fn a_healthy_stream_that_ends_is_no_failure() {
        let mut pauses = ReconnectBackoff::new(RETRIES);
        for _ in 0..9 {
            assert!(pauses.ended(HEALTHY_LIFETIME) <= MAX_PAUSE_AFTER_HEALTHY);
        }
        let short = HEALTHY_LIFETIME - Duration::from_millis(1);
        assert_eq!(
            [pauses.ended(short), pauses.ended(short)],
            [10, 20].map(Duration::from_secs)
        );
        assert!(pauses.ended(HEALTHY_LIFETIME) <= MAX_PAUSE_AFTER_HEALTHY);
        assert_eq!(
            pauses.ended(short),
            RETRIES.first,
            "the back-off begins anew"
        );
    }

    #[test]
    fn waits_vary_by_the_part_that_is_asked_for() {
        let pauses = ReconnectBackoff::new(Retries {
            variation: 0.5,
            ..RETRIES
        });
        let waits: Vec<_> = (0..1_000).map(|_| pauses.unreached()).collect();
        let least = waits.iter().min().unwrap();
        let most = waits.iter().max().unwrap();
        assert!(
            *least >= RETRIES.connect / 2 && *most <= RETRIES.connect * 3 / 2,
            "{least:?} {most:?}"
        );
        assert!(*most - *least > RETRIES.connect / 2, "{least:?} {most:?}");
    }
}
