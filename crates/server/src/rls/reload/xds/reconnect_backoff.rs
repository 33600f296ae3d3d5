//! Delays before the management server is called again.

use std::time::Duration;

use crate::settings::Retries;

/// Lifetime from which a stream was healthy, even without responses. Servers end streams to spread
/// their clients, and may have no changes for hours.
const HEALTHY_LIFETIME: Duration = Duration::from_millis(500);
/// Maximum of the random delay after a healthy stream: the clients of a server that restarts do not
/// reconnect at one moment.
const MAX_HEALTHY_DELAY: Duration = Duration::from_millis(100);

/// The delays, and the number of streams that were lost since the last good one.
#[derive(Debug)]
pub(super) struct ReconnectBackoff {
    retries: Retries,
    losses: u32,
}

/// Whether a stream with this lifetime was healthy.
pub(super) fn is_healthy(lifetime: Duration) -> bool {
    lifetime >= HEALTHY_LIFETIME
}

impl ReconnectBackoff {
    pub(super) fn new(retries: Retries) -> Self {
        Self { retries, losses: 0 }
    }

    /// Returns the delay after a failed connect. It does not grow, because an attempt costs an
    /// absent server nothing.
    pub(super) fn after_connect_failure(&self) -> Duration {
        self.jittered(self.retries.connect)
    }

    /// Returns the delay after a stream that the server ended: a short one if its `lifetime` was
    /// that of a healthy stream.
    pub(super) fn after_end(&mut self, lifetime: Duration) -> Duration {
        if !is_healthy(lifetime) {
            return self.after_loss();
        }
        self.reset();
        MAX_HEALTHY_DELAY.mul_f64(fastrand::f64())
    }

    /// Returns the delay after a stream that failed. It doubles with each consecutive failure.
    pub(super) fn after_loss(&mut self) -> Duration {
        let Retries { first, longest, .. } = self.retries;
        let delay = first
            .saturating_mul(2_u32.saturating_pow(self.losses))
            .min(longest);
        self.losses = self.losses.saturating_add(1);
        self.jittered(delay)
    }

    /// Resets the delay to the first one after a good stream.
    pub(super) fn reset(&mut self) {
        self.losses = 0;
    }

    /// Varies a delay by up to the part in the settings: servers that lost one management server do
    /// not reconnect at one moment.
    fn jittered(&self, wait: Duration) -> Duration {
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
        let mut seconds = || {
            (0..5)
                .map(|_| pauses.after_loss().as_secs())
                .collect::<Vec<_>>()
        };
        assert_eq!(seconds(), [10, 20, 40, 60, 60]);
        assert_eq!(seconds(), [60; 5]);
        pauses.reset();
        assert_eq!(pauses.after_loss(), RETRIES.first);
        assert_eq!(pauses.after_connect_failure(), RETRIES.connect);
        let mut old = ReconnectBackoff {
            losses: u32::MAX,
            ..pauses
        };
        assert_eq!(old.after_loss(), RETRIES.longest);
    }

    /// After routine ends of streams without news, a change arrived up to 90 s late.
    #[test]
    fn a_healthy_stream_that_ends_is_no_failure() {
        let mut pauses = ReconnectBackoff::new(RETRIES);
        for _ in 0..9 {
            assert!(pauses.after_end(HEALTHY_LIFETIME) <= MAX_HEALTHY_DELAY);
        }
        let short = HEALTHY_LIFETIME - Duration::from_millis(1);
        assert_eq!(
            [pauses.after_end(short), pauses.after_end(short)],
            [10, 20].map(Duration::from_secs)
        );
        assert!(pauses.after_end(HEALTHY_LIFETIME) <= MAX_HEALTHY_DELAY);
        assert_eq!(
            pauses.after_end(short),
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
        let waits: Vec<_> = (0..1_000).map(|_| pauses.after_connect_failure()).collect();
        let least = waits.iter().min().unwrap();
        let most = waits.iter().max().unwrap();
        assert!(
            *least >= RETRIES.connect / 2 && *most <= RETRIES.connect * 3 / 2,
            "{least:?} {most:?}"
        );
        assert!(*most - *least > RETRIES.connect / 2, "{least:?} {most:?}");
    }
}
