//! Drives the engine over time: sweeps when a timer is due, and looks for what other servers did.

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

/// How often to look for what other servers did. They tell of it, but what they tell may get lost.
const LOOK: Duration = Duration::from_secs(10);
/// How often, while they cannot be heard. A job that another server made ready waits at most this long for a worker here.
const LOOK_WHILE_DEAF: Duration = Duration::from_millis(250);
/// How often, while part of the store does not answer: what is there is to be found soon after it does.
const LOOK_WHILE_TROUBLED: Duration = Duration::from_secs(1);
/// The longest wait between two turns while something fails: it is tried again in each.
const TURN: Duration = Duration::from_secs(1);
/// The longest wait while all works.
const CALM: Duration = Duration::from_secs(10);
/// The shortest wait between two sweeps: timers that are close together are handled in one.
const SHORTEST: Duration = Duration::from_millis(5);
/// How long a look may take. A node that does not answer must not keep what is due elsewhere waiting.
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
    /// When it last looked for what other servers did.
    looked: Option<Instant>,
    /// When to look again after looks that failed.
    look_after: Instant,
    patience: Patience,
    /// Lines about looks that failed, and about work that was due and was not done.
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

    /// Does what is due, and waits until something is due again.
    async fn step(&mut self) {
        let now = self.gaps.check();
        // A store that cannot be read is told of by `revival`.
        let more = self.engine.sweep_working(now).await.unwrap_or(false);
        self.tell_unserved();
        self.look_around().await;
        let pause = if more { SHORTEST } else { self.until_due() };
        self.wait(pause.min(self.until_look())).await;
    }

    /// Says once a minute how much of what is due cannot be done.
    fn tell_unserved(&mut self) {
        let Some(Unserved { attempts, error }) = self.engine.take_unserved() else {
            return;
        };
        if let Some(attempts) = self.unserved.add(attempts) {
            warn!(attempts, %error, "leases, retries and removals that are due could not be written; they are tried again");
        }
    }

    /// Looks for what other servers did, if it is time to.
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

    /// How long until the next look.
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

    /// Whether other servers may use the same store.
    fn is_shared(&self) -> bool {
        matches!(self.engine.store(), Store::Redis(_))
    }

    /// How long until a timer is due, as far as is known.
    fn until_due(&self) -> Duration {
        // The clock of a machine, which counts for a file, may be set at any time.
        let longest = if self.is_shared() && self.engine.is_calm() {
            CALM
        } else {
            TURN
        };
        self.engine.next_due().map_or(longest, |due| {
            due.since(self.clock.now()).clamp(SHORTEST, longest)
        })
    }

    /// Waits for `pause`, or less when a timer becomes due sooner or the clock is set.
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
