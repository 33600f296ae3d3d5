//! Measures the silence of a connection: overdue replies, a silent server, and idleness.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

use crate::config::Config;

/// Silence after which a reply is overdue, or ten usual reply times if these are longer. The
/// connection stays open: closing it would turn each pause of a server into many connects at the
/// same moment.
const OVERDUE_AFTER: Duration = Duration::from_millis(500);

/// Delay of a timer above which this process itself did not run, so that silence says nothing about
/// the server. On a busy thread a timer is late by a few milliseconds.
const LATE_TIMER: Duration = Duration::from_millis(20);

/// Weight of the latest read in the mean of reply times.
const SHARE_OF_LATEST: f32 = 0.1;

/// Tracks how long a connection is silent or idle.
///
/// **Invariant:** a connection is not ended for silence before the silence was reported, unless the
/// bound for an overdue reply is the stall timeout itself.
#[derive(Debug)]
pub(crate) struct Watchdog {
    stall_timeout: Duration,
    /// Zero lets a connection stay idle for ever.
    idle_timeout: Duration,
    /// Time at which bytes last arrived, or a long write made progress.
    last_activity: Instant,
    /// Whether an overdue reply was reported to the node.
    reported: bool,
    /// Whether silence was excused because a timer was late, since bytes last arrived or a reply
    /// was reported as overdue.
    excused: bool,
    reply_time: Duration,
    timer: Pin<Box<Sleep>>,
}

/// Result of a check of the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// There is time left.
    Wait,
    /// No reply was pending for the idle timeout.
    Idle,
    /// A reply is overdue, and this was not reported yet.
    Overdue,
    /// No bytes were received for the stall timeout.
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

    /// Returns the recent mean time between a write and its last reply.
    #[inline]
    pub(crate) fn reply_time(&self) -> Duration {
        self.reply_time
    }

    /// Records that bytes arrived. Returns true if an overdue reply had been reported.
    #[inline]
    pub(crate) fn bytes_arrived(&mut self, now: Instant) -> bool {
        self.last_activity = now;
        self.excused = false;
        std::mem::take(&mut self.reported)
    }

    /// Records progress of a long write: the server cannot answer before it has all of it.
    pub(crate) fn write_goes_on(&mut self) {
        self.last_activity = Instant::now();
    }

    /// Records the reply time of a group that was written at `since` and whose last reply has just
    /// arrived.
    #[inline]
    pub(crate) fn answered(&mut self, since: Instant) {
        let latest = (self.last_activity - since).mul_f32(SHARE_OF_LATEST);
        self.reply_time = self.reply_time.mul_f32(1.0 - SHARE_OF_LATEST) + latest;
    }

    /// Returns the time at which silence or idleness will have lasted too long, with the oldest
    /// reply pending since `oldest`. `None` if there is no limit.
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
    /// The timer is moved only if it would fire too late: moving it at every turn would cost more
    /// than one early wake.
    #[inline]
    pub(crate) fn poll_timer(&mut self, wake: Instant, cx: &mut Context<'_>) -> Poll<()> {
        if self.timer.deadline() > wake {
            self.timer.as_mut().reset(wake);
        }
        self.timer.as_mut().poll(cx)
    }

    /// Sets the expired timer to its next time.
    pub(crate) fn reset_timer(&mut self, wake: Instant) {
        self.timer.as_mut().reset(wake);
    }

    /// Checks the time after the timer for `limit` has fired.
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
            // The next check is after another idle timeout.
            self.last_activity = now;
            return Verdict::Idle;
        }
        if now - limit > LATE_TIMER && !self.excused {
            // This process did not run: the pending commands may have been written a moment ago.
            // This is excused only once: otherwise a process whose timers are always late, as under
            // a CPU quota, would never notice silence.
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

    /// Returns how long the connection may be silent now, with a pending reply.
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

    /// Compares the limit, and the verdict so long after it, with a reply owed since the last bytes
    /// arrived or without one.
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
