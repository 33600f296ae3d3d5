//! Time of the store, which all events of workflows use. Servers with different clocks would end
//! each other's leases, so all use the clock of the Redis that stores partition 0. A SQLite file
//! has only one server, whose own clock is used.
//!
//! An operator or NTP may set either clock at any time, yet the time of the store continues. If the
//! clock is set ahead, the time follows at once. If it is set back, the time runs slower until both
//! are equal. It never stops and never goes back.

mod steady;

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tidegate_workflow::{Store, StoreError, Timestamp};
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::{info, warn};

use self::steady::SteadyClock;
use crate::base::clock;
use crate::base::sync::lock;

/// Number of requests for the time at the start: the first answer includes the time to connect.
const START_MEASUREMENTS: usize = 3;
/// Difference between the clocks of this machine and the store that needs no warning.
const MAX_SKEW: Duration = Duration::from_secs(1);

/// Corrections up to this size need no wake-up: timers are late by at most this.
const SILENT_CORRECTION: Duration = Duration::from_millis(100);

/// Time of a store. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct StoreClock {
    shared: Arc<ClockState>,
}

#[derive(Debug, Default)]
struct ClockState {
    /// None if the clock of this machine is used.
    reference: Mutex<Option<ReferenceTime>>,
    /// Latest time of the store, from which it continues.
    steady: Mutex<SteadyClock>,
    /// Notified when an answer proves that the time was wrong by more than [`SILENT_CORRECTION`].
    corrected: Notify,
}

/// The store's time at one instant. From then on, a monotonic clock measures it, since the clock of
/// this machine may be set.
#[derive(Debug, Clone, Copy)]
struct ReferenceTime {
    at: Instant,
    micros: u64,
}

impl ReferenceTime {
    fn micros_at(self, now: Instant) -> u64 {
        self.micros
            .saturating_add(micros(now.saturating_duration_since(self.at)))
    }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

impl StoreClock {
    /// Starts the clock of a store that was just opened. If Redis does not allow TIME, it logs a
    /// warning.
    pub(crate) async fn start(&self, store: &Store) {
        for _ in 0..START_MEASUREMENTS {
            if let Err(error) = self.measure(store).await {
                warn!(
                    %error,
                    "redis does not tell the time, so this machine's clock is used for workflows, and must agree with those of the other \
                     servers: allow the command TIME"
                );
                break;
            }
        }
        // Times that were returned before the store was open have no meaning.
        *self.steady() = SteadyClock::default();
    }

    /// Time of the store, never before an earlier result.
    pub(crate) fn now(&self) -> Timestamp {
        let reference = *self.reference();
        // The lock is taken before the clock is read, so that readings are processed in order.
        let mut steady = self.steady();
        let now = Instant::now();
        let micros =
            reference.map_or_else(|| clock::workflow_now().micros(), |at| at.micros_at(now));
        Timestamp::from_micros(steady.follow(micros, now))
    }

    fn steady(&self) -> MutexGuard<'_, SteadyClock> {
        lock(&self.shared.steady)
    }

    /// Whether the time has jumped ahead since the last call. Leases may then seem to be over
    /// although they are not.
    pub(super) fn take_jump(&self) -> bool {
        self.steady().take_jump()
    }

    /// Microseconds by which the clock of this machine is ahead of the store's; negative if it is
    /// behind. None if it is the store's clock.
    pub(crate) fn skew(&self) -> Option<i64> {
        let reference = *self.reference();
        let store = reference?.micros_at(Instant::now());
        Some(
            clock::workflow_now()
                .micros()
                .cast_signed()
                .wrapping_sub(store.cast_signed()),
        )
    }

    /// Logs that the clock which the store follows was set since the last call.
    pub(crate) fn log_step(&self) {
        let step = self.steady().take_step();
        if let Some(micros) = step {
            warn!(
                seconds = micros as f64 / 1e6,
                ahead = self.steady().ahead() as f64 / 1e6,
                "the clock that workflows follow was set. They follow one that was set ahead at once; after one that was set back, their time \
                 goes on, a tenth slower until both are the same again"
            );
        }
    }

    /// Logs that this machine's clock is far from the store's, and later that it is not any more.
    /// `warned` says which of the two was logged last.
    pub(crate) fn log_skew(&self, warned: &mut bool) {
        let large = self
            .skew()
            .filter(|skew| Duration::from_micros(skew.unsigned_abs()) > MAX_SKEW);
        match large {
            Some(skew) if !*warned => warn!(
                seconds = skew as f64 / 1e6,
                "the clock of this machine is not that of redis. Workflows follow the clock of redis; rate limits follow this one"
            ),
            None if *warned => info!("the clock of this machine is that of redis again"),
            _ => {}
        }
        *warned = large.is_some();
    }

    /// Advances the clock of this process, and the time of a store that uses it. Returns whether
    /// the clock could be advanced.
    pub(super) fn advance(&self, by: Duration) -> bool {
        let is_followed = self.reference().is_none();
        // The lock prevents reads between the two changes.
        let mut steady = self.steady();
        let moved = clock::advance(by);
        if moved && is_followed {
            steady.advance(by);
        }
        drop(steady);
        self.shared.corrected.notify_one();
        moved
    }

    async fn measure(&self, store: &Store) -> Result<(), StoreError> {
        let sent = Instant::now();
        if let Some(time) = store.time().await? {
            self.apply_reading(time.micros(), sent, Instant::now());
        }
        Ok(())
    }

    fn reference(&self) -> MutexGuard<'_, Option<ReferenceTime>> {
        lock(&self.shared.reference)
    }

    /// Applies a time of the store that was read between `sent` and `received`. The estimate
    /// changes only as far as it is proven wrong, so a slow answer does no harm.
    pub(super) fn apply_reading(&self, reported: u64, sent: Instant, received: Instant) {
        let trip = micros(received.saturating_duration_since(sent));
        let last = *self.reference();
        let estimated = last.map_or(reported + trip / 2, |before| before.micros_at(received));
        let reference = ReferenceTime {
            at: received,
            micros: estimated.clamp(reported, reported + trip),
        };
        *self.reference() = Some(reference);
        if estimated.abs_diff(reference.micros) > micros(SILENT_CORRECTION) {
            self.shared.corrected.notify_one();
        }
    }

    /// Returns when a correction was large. Only one task at a time may wait.
    pub(super) async fn corrected(&self) {
        self.shared.corrected.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60_000_000;

    fn at(clock: &StoreClock, now: Instant) -> u64 {
        clock.reference().unwrap().micros_at(now)
    }

    #[tokio::test]
    async fn an_estimate_moves_only_as_far_as_it_is_proven_wrong() {
        let clock = StoreClock::default();
        let start = Instant::now();
        let after = |millis| start + Duration::from_millis(millis);
        clock.apply_reading(MINUTE, after(0), after(10));
        assert_eq!(at(&clock, after(10)), MINUTE + 5_000);
        // Right, as far as this answer can tell.
        clock.apply_reading(MINUTE + 500_000, after(400), after(1_400));
        assert_eq!(at(&clock, after(1_400)), MINUTE + 1_395_000);
        // It was too late by more than the answer took.
        clock.apply_reading(MINUTE + 1_500_000, after(2_000), after(2_002));
        assert_eq!(at(&clock, after(2_002)), MINUTE + 1_502_000);
        // Another Redis with another clock.
        clock.apply_reading(3 * MINUTE, after(3_000), after(3_001));
        assert_eq!(at(&clock, after(3_001)), 3 * MINUTE);
    }

    #[tokio::test(start_paused = true)]
    async fn time_never_goes_back() {
        let clock = StoreClock::default();
        let now = Instant::now();
        clock.apply_reading(2 * MINUTE, now, now);
        let before = clock.now();
        clock.apply_reading(MINUTE, now, now);
        let after = clock.now();
        assert!(after >= before);
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(
            clock.now().since(after),
            Duration::from_secs(9),
            "and it does not stand still"
        );
        assert!(!clock.take_jump());
        assert!(clock.skew().unwrap() > 0);
    }
}
