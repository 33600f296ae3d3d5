//! Drives the engine over time: sweeps when a timer is due, and polls for changes by other servers.

use std::sync::Arc;
use std::time::Duration;

use tidegate_api::Activity;
use tidegate_ratelimit::Limiter;
use tidegate_workflow::{Engine, ServerDescription, Store, StoreError, Unserved};
use tokio::time::{Instant, sleep, timeout};
use tracing::warn;

use super::backoff::{OnceAMinute, Patience};
use super::clock::StoreClock;
use super::gaps::GapDetector;
use super::{heartbeat, limit_watcher, queue_sampler, store_probe};

/// Poll interval for changes by other servers. They publish notifications, but these may get lost.
const LOOK: Duration = Duration::from_secs(10);
/// Poll interval while notifications are not received: the longest wait for a job that another
/// server made ready.
const LOOK_WHILE_DEAF: Duration = Duration::from_millis(250);
/// Poll interval while a part of the store fails, so that its changes are found soon after it
/// recovers.
const LOOK_WHILE_TROUBLED: Duration = Duration::from_secs(1);
/// Longest wait between two steps while something fails: each step retries.
const TURN: Duration = Duration::from_secs(1);
/// Longest wait while nothing fails.
const CALM: Duration = Duration::from_secs(10);
/// Shortest wait between two sweeps: timers that are close together are handled in one.
const SHORTEST: Duration = Duration::from_millis(5);
/// Timeout of a poll. A node that does not answer must not delay timers on other nodes.
const LONGEST_LOOK: Duration = Duration::from_secs(1);

/// Drives the engine. Never returns.
pub(super) async fn run(
    engine: Engine,
    clock: StoreClock,
    limiter: Limiter,
    about: ServerDescription,
    activity: Arc<Activity>,
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
        () = engine.unblock_loop(|| clock.now(), limit_watcher::changes(limiter)) => {}
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
    looked: Option<Instant>,
    /// Earliest time of the next poll after a failure.
    look_after: Instant,
    patience: Patience,
    /// Throttles of the warnings about failed polls, and about work that is due and could not be
    /// done.
    looks: OnceAMinute,
    unserved: OnceAMinute,
}

impl Driver {
    fn new(engine: Engine, clock: StoreClock, gaps: Arc<GapDetector>) -> Self {
        let now = Instant::now();
        Self {
            engine,
            clock,
            gaps,
            looked: None,
            look_after: now,
            patience: Patience::default(),
            looks: OnceAMinute::default(),
            unserved: OnceAMinute::default(),
        }
    }

    /// Does the work that is due, and waits until more is due.
    async fn step(&mut self) {
        let now = self.gaps.check();
        // A store that cannot be read is logged by `store_probe`.
        let more = self.engine.sweep_working(now).await.unwrap_or(false);
        self.tell_unserved();
        self.look_around().await;
        let pause = if more { SHORTEST } else { self.until_due() };
        self.wait(pause.min(self.until_look())).await;
    }

    /// Logs the amount of missed work, once a minute.
    fn tell_unserved(&mut self) {
        let Some(Unserved { attempts, error }) = self.engine.take_unserved() else {
            return;
        };
        if let Some(attempts) = self.unserved.add(attempts) {
            warn!(attempts, %error, "leases, retries and removals that are due could not be written; they are tried again");
        }
    }

    /// Polls for changes by other servers, if it is time.
    async fn look_around(&mut self) {
        if self.until_look() > Duration::ZERO {
            return;
        }
        self.looked = Some(Instant::now());
        let look = timeout(LONGEST_LOOK, self.engine.look_around());
        let looked = look.await.unwrap_or_else(|_| {
            let reason = format!("no answer within {} s", LONGEST_LOOK.as_secs());
            Err(StoreError::Unavailable { reason })
        });
        match looked {
            Ok(_) => self.patience = Patience::default(),
            Err(error) => {
                self.looked = None;
                self.look_after = Instant::now() + self.patience.next();
                if let Some(looks) = self.looks.add(1) {
                    warn!(looks, %error, "cannot see what other servers did with workflows; trying again");
                }
            }
        }
    }

    /// Time until the next poll.
    fn until_look(&self) -> Duration {
        if !self.is_shared() {
            return Duration::MAX;
        }
        let now = Instant::now();
        let apart = match () {
            () if !self.engine.receives_notifications() => LOOK_WHILE_DEAF,
            () if !self.engine.troubles().is_empty() => LOOK_WHILE_TROUBLED,
            () => LOOK,
        };
        let next = self.looked.map_or(self.look_after, |looked| {
            (looked + apart).max(self.look_after)
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
        let longest = if self.is_shared() && self.engine.is_calm() {
            CALM
        } else {
            TURN
        };
        self.engine.next_due().map_or(longest, |due| {
            due.since(self.clock.now()).clamp(SHORTEST, longest)
        })
    }

    /// Waits for `pause`, or less if a timer becomes due earlier or the clock is set.
    async fn wait(&self, pause: Duration) {
        let wake = sleep(pause);
        tokio::pin!(wake);
        loop {
            tokio::select! {
                () = wake.as_mut() => return,
                () = async { tokio::select! { () = self.engine.sooner() => {}, () = self.clock.set() => {} } } => {
                    let sooner = Instant::now() + self.until_due();
                    if sooner < wake.deadline() {
                        wake.as_mut().reset(sooner);
                    }
                }
            }
        }
    }
}
