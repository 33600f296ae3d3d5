//! Watches the clock of a connection: replies that are overdue, a server that is silent, and idleness.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

use crate::config::Config;

/// A reply is overdue after silence of this long, or of ten usual reply times. To close the connection so soon would turn
/// each pause of a server into many connects at the same moment.
const OVERDUE_AFTER: Duration = Duration::from_millis(500);

/// A timer that fires so much later than it was due says nothing about the server: this process did not run. On a busy
/// thread a timer is late by a few milliseconds.
const LATE_TIMER: Duration = Duration::from_millis(20);

/// How much the latest read counts in the mean of reply times.
const SHARE_OF_LATEST: f32 = 0.1;

/// How long a connection may be silent or idle.
///
/// **Invariant:** a connection is not ended for silence before the silence was reported, unless the bound for an overdue
/// reply is the stall timeout itself.
#[derive(Debug)]
pub(crate) struct Watchdog {
    stall_timeout: Duration,
    /// Zero lets a connection be idle for ever.
    idle_timeout: Duration,
    /// When bytes last arrived, or a long write went on.
    last_activity: Instant,
    /// The node was told that a reply is overdue.
    reported: bool,
    /// Silence was excused because a timer was late, since bytes last arrived or a reply was reported as overdue.
    excused: bool,
    reply_time: Duration,
    timer: Pin<Box<Sleep>>,
}

/// What the clock says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// There is time left.
    Wait,
    /// Nothing was owed for the idle timeout.
    Idle,
    /// A reply is overdue, which was not reported yet.
    Overdue,
    /// Nothing was received for the stall timeout.
    Stalled,
}

impl Watchdog {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            stall_timeout: config.stall_timeout,
            idle_timeout: config.idle_timeout,
            last_activity: Instant::now(),
            reported: false,
            excused: false,
            reply_time: Duration::ZERO,
            timer: Box::pin(sleep(config.stall_timeout)),
        }
    }

    /// Recent mean time between a write and its last reply.
    #[inline]
    pub(crate) fn reply_time(&self) -> Duration {
        self.reply_time
    }

    /// Takes note of bytes that arrived. True when a reply had been reported as overdue.
    #[inline]
    pub(crate) fn bytes_arrived(&mut self, now: Instant) -> bool {
        self.last_activity = now;
        self.excused = false;
        std::mem::take(&mut self.reported)
    }

    /// Takes note of a long write that goes on: the server cannot answer before it has all of it.
    pub(crate) fn write_goes_on(&mut self) {
        self.last_activity = Instant::now();
    }

    /// Takes note of a group written at `since` whose last reply has just arrived.
    #[inline]
    pub(crate) fn answered(&mut self, since: Instant) {
        let latest = (self.last_activity - since).mul_f32(SHARE_OF_LATEST);
        self.reply_time = self.reply_time.mul_f32(1.0 - SHARE_OF_LATEST) + latest;
    }

    /// When silence or idleness will have lasted too long, with the oldest reply owed since `oldest`; none when it may last
    /// for ever.
    #[inline]
    pub(crate) fn limit(&self, oldest: Option<Instant>) -> Option<Instant> {
        match oldest {
            Some(since) => Some(since.max(self.last_activity) + self.longest_silence()),
            None if self.idle_timeout.is_zero() => None,
            None => Some(self.last_activity + self.idle_timeout),
        }
    }

    /// Waits until the timer fires, at `wake` or earlier.
    ///
    /// The timer is moved only when it would fire too late: moving it at every turn would cost more than one early wake.
    #[inline]
    pub(crate) fn poll_timer(&mut self, wake: Instant, cx: &mut Context<'_>) -> Poll<()> {
        if self.timer.deadline() > wake {
            self.timer.as_mut().reset(wake);
        }
        self.timer.as_mut().poll(cx)
    }

    /// Sets the timer that has fired to its next moment.
    pub(crate) fn reset_timer(&mut self, wake: Instant) {
        self.timer.as_mut().reset(wake);
    }

    /// What `now` means, after the timer for `limit` has fired.
    pub(crate) fn verdict(
        &mut self,
        now: Instant,
        limit: Instant,
        oldest: Option<Instant>,
    ) -> Verdict {
        if now < limit {
            return Verdict::Wait;
        }
        if oldest.is_none() {
            // It is asked again after another idle timeout.
            self.last_activity = now;
            return Verdict::Idle;
        }
        if now - limit > LATE_TIMER && !self.excused {
            // This process did not run: what is owed may have been written a moment ago. Once is enough: in a process whose
            // timers are always late, as under a quota of processor time, silence would never be noticed.
            self.last_activity = now;
            self.excused = true;
            return Verdict::Wait;
        }
        if self.reported || self.longest_silence() == self.stall_timeout {
            return Verdict::Stalled;
        }
        self.reported = true;
        self.excused = false;
        Verdict::Overdue
    }

    /// How long the connection may be silent now, with a reply due.
    #[inline]
    fn longest_silence(&self) -> Duration {
        if self.reported {
            self.stall_timeout
        } else {
            OVERDUE_AFTER
                .max(self.reply_time * 10)
                .min(self.stall_timeout)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Duration = Duration::from_secs(60);
    const STALL: Duration = Duration::from_secs(5);

    /// A watchdog whose last bytes arrived at `start`.
    fn watchdog(start: Instant, stall_timeout: Duration) -> Watchdog {
        let mut config = Config::single("127.0.0.1:1".parse().unwrap());
        config.stall_timeout = stall_timeout;
        config.idle_timeout = IDLE;
        let mut watchdog = Watchdog::new(&config);
        watchdog.bytes_arrived(start);
        watchdog
    }

    /// Compares the limit, and the verdict so long after it, with a reply owed since the last bytes arrived or without one.
    fn check(
        watchdog: &mut Watchdog,
        owes: Option<Instant>,
        limit: Instant,
        late: Duration,
        verdict: Verdict,
    ) {
        assert_eq!(watchdog.limit(owes), Some(limit));
        assert_eq!(watchdog.verdict(limit + late, limit, owes), verdict);
    }

    const ON_TIME: Duration = Duration::ZERO;

    #[tokio::test]
    async fn silence_is_reported_and_then_ends_the_connection() {
        let start = Instant::now();
        let mut watchdog = watchdog(start, STALL);
        assert_eq!(
            watchdog.verdict(start, start + OVERDUE_AFTER, Some(start)),
            Verdict::Wait
        );
        check(
            &mut watchdog,
            Some(start),
            start + OVERDUE_AFTER,
            ON_TIME,
            Verdict::Overdue,
        );
        check(
            &mut watchdog,
            Some(start),
            start + STALL,
            ON_TIME,
            Verdict::Stalled,
        );
    }

    #[tokio::test]
    async fn bytes_end_the_silence() {
        let start = Instant::now();
        let mut watchdog = watchdog(start, STALL);
        check(
            &mut watchdog,
            Some(start),
            start + OVERDUE_AFTER,
            ON_TIME,
            Verdict::Overdue,
        );
        let later = start + Duration::from_secs(1);
        assert!(watchdog.bytes_arrived(later), "the silence was reported");
        assert!(
            !watchdog.bytes_arrived(later),
            "and its end is reported once"
        );
        check(
            &mut watchdog,
            Some(start),
            later + OVERDUE_AFTER,
            ON_TIME,
            Verdict::Overdue,
        );
    }

    #[tokio::test]
    async fn a_short_stall_timeout_ends_the_connection_at_once() {
        let start = Instant::now();
        let stall = Duration::from_millis(100);
        check(
            &mut watchdog(start, stall),
            Some(start),
            start + stall,
            ON_TIME,
            Verdict::Stalled,
        );
    }

    #[tokio::test]
    async fn a_slow_server_is_given_ten_reply_times() {
        let start = Instant::now();
        let mut watchdog = watchdog(start, STALL);
        watchdog.reply_time = Duration::from_millis(200);
        check(
            &mut watchdog,
            Some(start),
            start + Duration::from_secs(2),
            ON_TIME,
            Verdict::Overdue,
        );
    }

    #[tokio::test]
    async fn a_process_that_did_not_run_blames_nobody() {
        let start = Instant::now();
        let mut watchdog = watchdog(start, STALL);
        let limit = start + OVERDUE_AFTER;
        let late = LATE_TIMER + Duration::from_millis(1);
        check(&mut watchdog, Some(start), limit, late, Verdict::Wait);
        check(
            &mut watchdog,
            Some(start),
            limit + late + OVERDUE_AFTER,
            ON_TIME,
            Verdict::Overdue,
        );
    }

    #[tokio::test]
    async fn silence_is_noticed_although_every_timer_is_late() {
        let start = Instant::now();
        let mut watchdog = watchdog(start, STALL);
        let mut now = start;
        let mut verdicts = Vec::new();
        for _ in 0..4 {
            let limit = watchdog.limit(Some(start)).unwrap();
            now = now.max(limit) + LATE_TIMER + Duration::from_millis(40);
            verdicts.push(watchdog.verdict(now, limit, Some(start)));
        }
        assert_eq!(
            verdicts,
            [
                Verdict::Wait,
                Verdict::Overdue,
                Verdict::Wait,
                Verdict::Stalled
            ]
        );
        assert!(
            now < start + 2 * OVERDUE_AFTER + 2 * STALL,
            "{:?}",
            now - start
        );
    }

    #[tokio::test]
    async fn idleness_is_reported_again_and_again() {
        let start = Instant::now();
        let mut watchdog = watchdog(start, STALL);
        check(&mut watchdog, None, start + IDLE, ON_TIME, Verdict::Idle);
        check(
            &mut watchdog,
            None,
            start + 2 * IDLE,
            ON_TIME,
            Verdict::Idle,
        );
        watchdog.idle_timeout = Duration::ZERO;
        assert_eq!(watchdog.limit(None), None);
    }
}
