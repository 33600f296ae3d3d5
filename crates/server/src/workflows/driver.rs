//! Drives the engine over time: sweeps when a timer is due, and looks for what other servers did.

use std::sync::Arc;
use std::time::Duration;

use tidegate_workflow::{Engine, HORIZON, Store, StoreError, Unserved};
use tokio::time::{Instant, sleep, timeout};
use tracing::warn;

use super::clock::StoreClock;
use super::patience::{OnceAMinute, Patience};
use super::revival;
use crate::supervise::Supervisor;
use tidegate_api::{Activity, QueueSample};

/// How often to look for what other servers did. A job that another server made ready waits at most this long for a worker here.
const LOOK: Duration = Duration::from_millis(250);
/// How often to look while other servers make jobs ready for workers here. A look is three commands for each partition.
const LOOK_WHILE_SHARING: Duration = Duration::from_millis(20);
/// How long after the last such job to keep looking that often.
const SHARING: Duration = Duration::from_secs(5);
/// The shortest wait between two sweeps: timers that are close together are handled in one.
const SHORTEST: Duration = Duration::from_millis(5);
/// How long a look may take. A node that does not answer must not keep what is due elsewhere waiting.
const LONGEST_LOOK: Duration = Duration::from_secs(1);
/// How often queues are sampled while somebody reads the metrics.
const SAMPLE: Duration = Duration::from_secs(5);

/// Drives the engine until the server stops.
pub(super) async fn run((engine, clock): (Engine, StoreClock), activity: Arc<Activity>, supervisor: Supervisor) {
    let mut driver = Driver::new(engine.clone(), clock, activity);
    tokio::select! {
        () = async { loop { driver.turn().await } } => {}
        () = revival::run(engine) => {}
        () = supervisor.stop.cancelled() => {}
    }
}

struct Driver {
    engine: Engine,
    clock: StoreClock,
    activity: Arc<Activity>,
    /// When queues were last sampled.
    sampled: Instant,
    /// Until when to look often for what other servers did.
    sharing_until: Instant,
    /// When to look again for what other servers did, after looks that failed.
    look_after: Instant,
    patience: Patience,
    /// Lines about looks that failed, and about work that was due and was not done.
    looks: OnceAMinute,
    unserved: OnceAMinute,
}

/// What a turn found.
struct Found {
    /// More may be due already.
    more: bool,
    /// Other servers had made jobs ready for workers that wait here.
    shared_jobs: bool,
}

impl Driver {
    fn new(engine: Engine, clock: StoreClock, activity: Arc<Activity>) -> Self {
        let now = Instant::now();
        Self {
            engine,
            clock,
            activity,
            sampled: now,
            sharing_until: now,
            look_after: now,
            patience: Patience::default(),
            looks: OnceAMinute::default(),
            unserved: OnceAMinute::default(),
        }
    }

    /// Does what is due, and waits until something is due again.
    async fn turn(&mut self) {
        let found = self.sweep().await;
        if found.shared_jobs {
            self.sharing_until = Instant::now() + SHARING;
        }
        if self.sampled.elapsed() >= SAMPLE && self.activity.is_wanted() {
            self.sampled = Instant::now();
            self.sample().await;
        }
        let longest = self.longest_wait();
        match found.more {
            true => self.wait(SHORTEST, longest).await,
            false => self.wait(self.until_due(longest).min(longest), longest).await,
        }
    }

    async fn sweep(&mut self) -> Found {
        // A store that cannot be read is told of by `revival`.
        let more = self.engine.sweep_working(self.clock.now()).await.unwrap_or(false);
        self.tell_unserved();
        Found { more, shared_jobs: self.look_around().await }
    }

    /// Says once a minute how much of what is due cannot be done.
    fn tell_unserved(&mut self) {
        let Some(Unserved { attempts, error }) = self.engine.take_unserved() else { return };
        if let Some(attempts) = self.unserved.add(attempts) {
            warn!(attempts, %error, "leases, retries and removals that are due could not be written; they are tried again");
        }
    }

    /// Looks for what other servers did, unless that failed just now. Returns whether there were jobs for workers here.
    async fn look_around(&mut self) -> bool {
        if !self.is_shared() || Instant::now() < self.look_after {
            return false;
        }
        let look = timeout(LONGEST_LOOK, self.engine.look_around());
        let looked = look.await.unwrap_or_else(|_| {
            let reason = format!("no answer within {} s", LONGEST_LOOK.as_secs());
            Err(StoreError::Unavailable { reason })
        });
        match looked {
            Ok(shared_jobs) => {
                self.patience = Patience::default();
                shared_jobs
            }
            Err(error) => {
                self.look_after = Instant::now() + self.patience.next();
                if let Some(looks) = self.looks.add(1) {
                    warn!(looks, %error, "cannot see what other servers did with workflows; trying again");
                }
                false
            }
        }
    }

    async fn sample(&self) {
        let Ok(queues) = self.engine.queue_states().await else { return };
        let now = self.clock.now();
        let samples = queues.found.into_iter().map(|queue| QueueSample {
            name: queue.name,
            ready: queue.ready,
            age: queue.oldest.map_or(0, |oldest| now.since(oldest).as_secs()),
            waiting_workers: queue.waiting_workers as u64,
        });
        self.activity.put_queues(samples.collect());
    }

    /// Whether other servers may use the same store.
    fn is_shared(&self) -> bool {
        matches!(self.engine.store(), Store::Redis(_))
    }

    fn longest_wait(&self) -> Duration {
        match self.is_shared() {
            true if Instant::now() < self.sharing_until => LOOK_WHILE_SHARING,
            true => LOOK,
            false => HORIZON,
        }
    }

    /// The time until the first timer is due, `otherwise` when there is none.
    fn until_due(&self, otherwise: Duration) -> Duration {
        self.engine.next_due().map_or(otherwise, |due| due.since(self.clock.now()).max(SHORTEST))
    }

    /// Waits for `pause`, or less when a timer becomes due sooner.
    async fn wait(&self, pause: Duration, longest: Duration) {
        let wake = sleep(pause);
        tokio::pin!(wake);
        loop {
            tokio::select! {
                () = wake.as_mut() => return,
                () = self.engine.sooner() => {
                    let sooner = Instant::now() + self.until_due(longest);
                    if sooner < wake.deadline() {
                        wake.as_mut().reset(sooner);
                    }
                }
            }
        }
    }
}
