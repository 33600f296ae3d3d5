//! The schedule of requests.
//!
//! A closed loop sends as soon as a stream is free. An open loop keeps a fixed schedule whatever
//! the server does, and the time of a call counts from its due time. So a server that stalls is
//! charged for all requests that should have been sent in the meantime, not only for the one that
//! waited.

use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::unix::AsyncFd;
use tokio::sync::Semaphore;

/// Minimum step of the schedule. Above ten thousand requests a second it has small groups, because
/// waking for each request would cost more than the request.
const MIN_STEP: Duration = Duration::from_micros(100);

/// The due times of requests.
pub(crate) enum CallSchedule {
    Closed { left: Cell<u64> },
    Open(OpenSchedule),
}

/// A fixed schedule of requests.
pub(crate) struct OpenSchedule {
    start: Instant,
    per_second: f64,
    /// One permit for every request that is due and not sent.
    due: Semaphore,
    released: Cell<u64>,
    taken: Cell<u64>,
}

impl CallSchedule {
    /// Creates a closed loop of at most `requests` requests.
    pub(crate) fn closed(requests: Option<u64>) -> Self {
        Self::Closed {
            left: Cell::new(requests.unwrap_or(u64::MAX)),
        }
    }

    pub(crate) fn open(per_second: f64, start: Instant) -> Self {
        let (released, taken) = (Cell::new(0), Cell::new(0));
        Self::Open(OpenSchedule {
            start,
            per_second,
            due: Semaphore::new(0),
            released,
            taken,
        })
    }

    /// Waits for the next request and returns the time that it counts from. `None` if there are no
    /// more.
    ///
    /// If the future is dropped, no request is taken.
    pub(crate) async fn next(&self) -> Option<Instant> {
        match self {
            Self::Closed { left } => {
                left.set(left.get().checked_sub(1)?);
                Some(Instant::now())
            }
            Self::Open(schedule) => {
                schedule.due.acquire().await.ok()?.forget();
                let ticket = schedule.taken.get();
                schedule.taken.set(ticket + 1);
                Some(schedule.start + due_after(ticket, schedule.per_second))
            }
        }
    }

    pub(crate) fn is_finished(&self) -> bool {
        matches!(self, Self::Closed { left } if left.get() == 0)
    }

    /// Requests that are due and not sent, because every stream is busy.
    pub(crate) fn behind(&self) -> u64 {
        match self {
            Self::Closed { .. } => 0,
            Self::Open(schedule) => schedule.due.available_permits() as u64,
        }
    }

    /// Releases requests when they are due, as long as it is polled. Returns at once for a closed
    /// loop.
    pub(crate) async fn release_due(&self) -> Result<()> {
        let Self::Open(schedule) = self else {
            return Ok(());
        };
        let timer = Timer::new()?;
        loop {
            let next = schedule.start + due_after(schedule.released.get(), schedule.per_second);
            timer
                .wait(next.saturating_duration_since(Instant::now()))
                .await?;
            let passed = schedule.start.elapsed();
            let mut released = schedule.released.get();
            while due_after(released, schedule.per_second) <= passed {
                released += 1;
            }
            schedule
                .due
                .add_permits((released - schedule.released.get()) as usize);
            schedule.released.set(released);
        }
    }
}

/// Returns the due time of a request: its time in the schedule, rounded up to the minimum step.
fn due_after(ticket: u64, per_second: f64) -> Duration {
    let turn = Duration::from_secs_f64(ticket as f64 / per_second).as_nanos() as u64;
    Duration::from_nanos(turn.div_ceil(MIN_STEP.as_nanos() as u64) * MIN_STEP.as_nanos() as u64)
}

/// A kernel timer. The timer of tokio has steps of a millisecond, which is many requests late.
struct Timer(AsyncFd<OwnedFd>);

impl Timer {
    fn new() -> Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, flags).context("could not make a timer")?;
        #[expect(
            deprecated,
            reason = "sound for an OwnedFd, which stays open; its successor is unsafe to call"
        )]
        let timer = AsyncFd::new(timer)?;
        Ok(Self(timer))
    }

    async fn wait(&self, time: Duration) -> Result<()> {
        // A time of zero would disarm it.
        let time = time.max(Duration::from_nanos(1));
        let once = Itimerspec {
            it_interval: Timespec::default(),
            it_value: time.try_into()?,
        };
        timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &once)
            .context("could not set the timer")?;
        self.0.readable().await?.clear_ready();
        rustix::io::read(&self.0, &mut [0_u8; 8]).context("could not read the timer")?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schedule_is_even_and_in_steps() {
        let check = |ticket, per_second, micros| {
            assert_eq!(
                due_after(ticket, per_second),
                Duration::from_micros(micros),
                "{ticket} at {per_second}/s"
            );
        };
        check(0, 1000.0, 0);
        check(7, 1000.0, 7_000);
        check(1, 40_000.0, 100);
        check(4, 40_000.0, 100);
        check(5, 40_000.0, 200);
    }

    #[tokio::test]
    async fn an_open_loop_counts_from_the_schedule() {
        // The schedule began a second ago, so its first requests are long due.
        let start = Instant::now() - Duration::from_secs(1);
        let pace = CallSchedule::open(100.0, start);
        tokio::select! {
            kept = pace.release_due() => panic!("the schedule has no end: {kept:?}"),
            () = async {
                assert_eq!(pace.next().await, Some(start));
                assert_eq!(pace.next().await, Some(start + Duration::from_millis(10)));
                assert!(pace.behind() >= 98, "{}", pace.behind());
            } => {}
        }
    }

    #[tokio::test]
    async fn a_closed_loop_ends_after_its_requests() {
        let pace = CallSchedule::closed(Some(2));
        assert!(pace.next().await.is_some() && pace.next().await.is_some());
        assert!(pace.is_finished());
        assert_eq!(pace.next().await, None);
    }
}
