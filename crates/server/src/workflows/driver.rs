//! Drives the engine over time: sweeps when a timer is due, and polls for changes by other servers.

use std::sync::Arc;
use std::time::Duration;

use tidegate_api::ApiMetrics;
use tidegate_ratelimit::Limiter;
use tidegate_workflow::{Engine, MissedWork, ServerDescription, Store, StoreError};
use tokio::time::{Instant, sleep, timeout};
use tracing::warn;

use super::backoff::{Backoff, EventLogThrottle};
use super::clock::StoreClock;
use super::heartbeat::GapDetector;
use super::units::limit_changes;
use super::{heartbeat, queue_sampler, store_probe};

/// Poll interval for changes by other servers. They publish notifications, but these may get lost.
const POLL_INTERVAL: Duration = Duration::from_secs(10);
/// Poll interval while notifications are not received: the longest wait for a job that another
/// server made ready.
const UNSUBSCRIBED_POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Poll interval while a part of the store fails, so that its changes are found soon after it
/// recovers.
const FAILING_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Longest wait between two steps while something fails: each step retries.
const MAX_FAILING_WAIT: Duration = Duration::from_secs(1);
/// Longest wait while nothing fails.
const MAX_WAIT: Duration = Duration::from_secs(10);
/// Shortest wait between two sweeps: timers that are close together are handled in one.
const MIN_SWEEP_WAIT: Duration = Duration::from_millis(5);
/// Timeout of a poll. A node that does not answer must not delay timers on other nodes.
const POLL_TIMEOUT: Duration = Duration::from_secs(1);

/// Drives the engine. Never returns.
pub(super) async fn run(
    engine: Engine,
    clock: StoreClock,
    limiter: Limiter,
    about: ServerDescription,
    activity: Arc<ApiMetrics>,
) {
    let gaps = Arc::new(GapDetector::new(engine.clone(), clock.clone()));
    let mut driver = Driver::new(engine.clone(), clock.clone(), gaps.clone());
    let listen = async {
        engine.listen(|| clock.now()).await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = async { loop { driver.step().await } } => {}
        () = listen => {}
        () = engine.unblock_loop(|| clock.now(), limit_changes(limiter)) => {}
        () = queue_sampler::run(&engine, &clock, &activity) => {}
        () = heartbeat::run(&gaps, about, Arc::clone(&activity)) => {}
        () = store_probe::run(engine.clone()) => {}
    }
}

struct Driver {
    engine: Engine,
    clock: StoreClock,
    gaps: Arc<GapDetector>,
    /// Time of the last poll.
    last_poll: Option<Instant>,
    /// Earliest time of the next poll after a failure.
    next_poll: Instant,
    backoff: Backoff,
    /// Throttles of the warnings about failed polls, and about work that is due and could not be
    /// done.
    failed_polls: EventLogThrottle,
    missed_work: EventLogThrottle,
}

impl Driver {
    fn new(engine: Engine, clock: StoreClock, gaps: Arc<GapDetector>) -> Self {
        let now = Instant::now();
        Self {
            engine,
            clock,
            gaps,
            last_poll: None,
            next_poll: now,
            backoff: Backoff::default(),
            failed_polls: EventLogThrottle::default(),
            missed_work: EventLogThrottle::default(),
        }
    }

    /// Does the work that is due, and waits until more is due.
    async fn step(&mut self) {
        let now = self.gaps.check();
        // A store that cannot be read is logged by `store_probe`.
        let more = self.engine.sweep_working(now).await.unwrap_or(false);
        self.log_missed_work();
        self.poll_others().await;
        let pause = if more {
            MIN_SWEEP_WAIT
        } else {
            self.until_due()
        };
        self.wait(pause.min(self.until_poll())).await;
    }

    /// Logs the amount of missed work, once a minute.
    fn log_missed_work(&mut self) {
        let Some(MissedWork { attempts, error }) = self.engine.take_missed_work() else {
            return;
        };
        if let Some(attempts) = self.missed_work.add(attempts) {
            warn!(attempts, %error, "leases, retries and removals that are due could not be written; they are tried again");
        }
    }

    /// Polls for changes by other servers, if it is time.
    async fn poll_others(&mut self) {
        if self.until_poll() > Duration::ZERO {
            return;
        }
        self.last_poll = Some(Instant::now());
        let poll = timeout(POLL_TIMEOUT, self.engine.poll_store());
        let polled = poll.await.unwrap_or_else(|_| {
            let reason = format!("no answer within {} s", POLL_TIMEOUT.as_secs());
            Err(StoreError::Unavailable { reason })
        });
        match polled {
            Ok(_) => self.backoff = Backoff::default(),
            Err(error) => {
                self.last_poll = None;
                self.next_poll = Instant::now() + self.backoff.next();
                if let Some(failures) = self.failed_polls.add(1) {
                    warn!(failures, %error, "cannot see what other servers did with workflows; trying again");
                }
            }
        }
    }

    /// Time until the next poll.
    fn until_poll(&self) -> Duration {
        if !self.is_shared() {
            return Duration::MAX;
        }
        let now = Instant::now();
        let interval = match () {
            () if !self.engine.receives_notifications() => UNSUBSCRIBED_POLL_INTERVAL,
            () if !self.engine.store_failures().is_empty() => FAILING_POLL_INTERVAL,
            () => POLL_INTERVAL,
        };
        let next = self.last_poll.map_or(self.next_poll, |polled| {
            (polled + interval).max(self.next_poll)
        });
        next.saturating_duration_since(now)
    }

    /// Whether other servers may use the store.
    fn is_shared(&self) -> bool {
        matches!(self.engine.store(), Store::Redis(_))
    }

    /// Time until the next known timer is due.
    fn until_due(&self) -> Duration {
        // The clock of this machine is used for a file, and may be set at any time.
        let longest = if self.is_shared() && self.engine.is_healthy() {
            MAX_WAIT
        } else {
            MAX_FAILING_WAIT
        };
        self.engine.next_due().map_or(longest, |due| {
            due.since(self.clock.now()).clamp(MIN_SWEEP_WAIT, longest)
        })
    }

    /// Waits for `pause`, or less if a timer becomes due earlier or the clock is set.
    async fn wait(&self, pause: Duration) {
        let wake = sleep(pause);
        tokio::pin!(wake);
        loop {
            tokio::select! {
                () = wake.as_mut() => return,
                () = async { tokio::select! { () = self.engine.wait_for_earlier_work() => {}, () = self.clock.corrected() => {} } } => {
                    let sooner = Instant::now() + self.until_due();
                    if sooner < wake.deadline() {
                        wake.as_mut().reset(sooner);
                    }
                }
            }
        }
    }
}
