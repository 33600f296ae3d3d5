//! A time that follows a clock which may be set, and never goes back.

use std::time::Duration;

use tokio::time::Instant;

/// While the clock is behind, the time runs a tenth slower. So a clock that was set back is reached
/// within ten times the step, and timers are late by at most a tenth.
const SLOWING_DIVISOR: u64 = 10;
/// Minimum step of the clock that is reported, in microseconds.
const MIN_STEP: i64 = 1_000_000;
/// Minimum jump of the time after which leases may be over although their workers live, in
/// microseconds.
const MIN_JUMP: i64 = 2_000_000;

/// A time in microseconds. It never goes back, and runs at nine tenths of the real speed or faster.
#[derive(Debug, Default)]
pub(super) struct SteadyClock {
    latest: Option<Latest>,
    /// Microseconds that have passed and have not slowed the time yet: less than
    /// [`SLOWING_DIVISOR`].
    rest: u64,
    /// Largest step of the clock since [`SteadyClock::take_step`], in microseconds.
    step: i64,
    /// Whether the time has jumped ahead since [`SteadyClock::take_jump`].
    jumped: bool,
}

/// The latest reading.
#[derive(Debug, Clone, Copy)]
struct Latest {
    at: Instant,
    /// The returned time.
    time: u64,
    /// The time of the clock.
    clock: u64,
}

impl SteadyClock {
    /// Returns the time at `now`, when the clock shows `clock`.
    pub(super) fn follow(&mut self, clock: u64, now: Instant) -> u64 {
        let time = match self.latest {
            None => clock,
            Some(latest) => {
                let now = now.max(latest.at);
                let passed = u64::try_from((now - latest.at).as_micros()).unwrap_or(u64::MAX);
                let step = difference(clock, latest.clock.saturating_add(passed));
                if step.abs() >= MIN_STEP.max(self.step.abs()) {
                    self.step = step;
                }
                let expected = latest.time.saturating_add(passed);
                self.jumped |= difference(clock, expected) >= MIN_JUMP;
                let slowing = passed.saturating_add(self.rest);
                self.rest = slowing % SLOWING_DIVISOR;
                expected.max(clock)
                    - expected
                        .saturating_sub(clock)
                        .min(slowing / SLOWING_DIVISOR)
            }
        };
        self.latest = Some(Latest {
            at: now,
            time,
            clock,
        });
        time
    }

    /// Advances the time with the clock, which a test advances. This is neither a step nor a jump.
    pub(super) fn advance(&mut self, by: Duration) {
        let micros = u64::try_from(by.as_micros()).unwrap_or(u64::MAX);
        if let Some(latest) = &mut self.latest {
            latest.clock = latest.clock.saturating_add(micros);
            latest.time = latest.time.saturating_add(micros);
        }
    }

    /// Returns the largest step of the clock since the last call, in microseconds. None if the
    /// clock was not set.
    pub(super) fn take_step(&mut self) -> Option<i64> {
        let step = std::mem::take(&mut self.step);
        (step != 0).then_some(step)
    }

    /// Whether the time has jumped ahead since the last call.
    pub(super) fn take_jump(&mut self) -> bool {
        std::mem::take(&mut self.jumped)
    }

    /// Microseconds by which the time is ahead of the clock.
    pub(super) fn ahead(&self) -> i64 {
        self.latest
            .map_or(0, |latest| difference(latest.time, latest.clock))
    }
}

fn difference(one: u64, other: u64) -> i64 {
    one.cast_signed().wrapping_sub(other.cast_signed())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    /// What is told, in seconds, when the clock is set by so many seconds at certain moments.
    fn check(set: &[(u64, i64)], expected: &[(u64, u64)]) -> SteadyClock {
        let mut steady = SteadyClock::default();
        let start = Instant::now();
        let mut last = 0;
        for second in 0..=expected.last().unwrap().0 {
            let shift: i64 = set
                .iter()
                .filter(|(at, _)| *at <= second)
                .map(|(_, by)| by)
                .sum();
            let clock = ((100_000 + second) * SECOND).saturating_add_signed(shift * 1_000_000);
            let told = steady.follow(clock, start + Duration::from_secs(second));
            assert!(
                second == 0 || told >= last + SECOND * 9 / 10,
                "it goes on after {second} s: {last} {told}"
            );
            last = told;
            if let Some((_, expected)) = expected.iter().find(|(at, _)| *at == second) {
                assert_eq!(told, (100_000 + expected) * SECOND, "after {second} s");
            }
        }
        steady
    }

    #[test]
    fn a_clock_that_is_set_back_is_reached_within_ten_times_the_step() {
        let mut steady = check(&[(10, -60)], &[(9, 9), (610, 550), (700, 640)]);
        assert_eq!(
            (steady.take_step(), steady.take_step()),
            (Some(-60_000_000), None)
        );
        assert!(!steady.take_jump());
        assert_eq!(steady.ahead(), 0);
    }

    #[test]
    fn a_clock_that_is_set_ahead_is_followed_at_once() {
        let mut steady = check(&[(10, 3_600)], &[(9, 9), (10, 3_610), (20, 3_620)]);
        assert_eq!(steady.take_step(), Some(3_600_000_000));
        assert!(steady.take_jump() && !steady.take_jump());
    }

    #[test]
    fn a_clock_that_is_set_ahead_and_back_stops_nothing() {
        let mut steady = check(
            &[(10, 3_600), (20, -3_600)],
            &[(19, 3_619), (29, 3_628), (36_020, 36_020)],
        );
        assert_eq!(
            steady.take_step(),
            Some(-3_600_000_000),
            "the latest of two"
        );
        assert!(steady.take_jump());
    }

    #[test]
    fn who_asks_often_gets_there_as_soon() {
        let mut steady = SteadyClock::default();
        let start = Instant::now();
        steady.follow(100 * SECOND, start);
        for micros in 1..=1_000 {
            let told = steady.follow(SECOND + micros, start + Duration::from_micros(micros));
            assert_eq!(told, 100 * SECOND + micros - micros / SLOWING_DIVISOR);
        }
    }

    #[test]
    fn what_tests_move_is_no_step() {
        let mut steady = SteadyClock::default();
        let now = Instant::now();
        steady.follow(SECOND, now);
        steady.advance(Duration::from_secs(60));
        assert_eq!(steady.follow(61 * SECOND, now), 61 * SECOND);
        assert_eq!((steady.take_step(), steady.take_jump()), (None, false));
    }
}
