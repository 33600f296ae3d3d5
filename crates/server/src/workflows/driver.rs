//! Drives the engine over time: sweeps when a timer is due, and looks for what other servers did.

use std::sync::Arc;
use std::time::Duration;

use tidegate_workflow::{Engine, HORIZON, Store, StoreError};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use super::clock::StoreClock;
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
/// How often queues are sampled while somebody reads the metrics.
const SAMPLE: Duration = Duration::from_secs(5);

/// Drives the engine until the server stops. `answers` is told whether the store answers.
pub(super) async fn run(
    (engine, clock): (Engine, StoreClock),
    activity: Arc<Activity>,
    answers: watch::Sender<bool>,
    supervisor: Supervisor,
) {
    let mut driver = Driver { sampled: Instant::now(), sharing_until: Instant::now(), engine, clock, activity };
    tokio::select! {
        () = async { loop { driver.turn(&answers).await } } => {}
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
}

/// What a turn found.
struct Found {
    /// More may be due already.
    more: bool,
    /// Other servers had made jobs ready for workers that wait here.
    shared_jobs: bool,
}

impl Driver {
    /// Does what is due, and waits until something is due again.
    async fn turn(&mut self, answers: &watch::Sender<bool>) {
        let found = self.sweep().await;
        note(answers, &found);
        if matches!(found, Ok(Found { shared_jobs: true, .. })) {
            self.sharing_until = Instant::now() + SHARING;
        }
        if self.sampled.elapsed() >= SAMPLE && self.activity.is_wanted() {
            self.sampled = Instant::now();
            self.sample().await;
        }
        let longest = self.longest_wait();
        match found {
            Ok(Found { more: true, .. }) => self.wait(SHORTEST, longest).await,
            Ok(Found { more: false, .. }) => self.wait(self.until_due(longest).min(longest), longest).await,
            Err(_) => self.wait(longest, longest).await,
        }
    }

    async fn sweep(&self) -> Result<Found, StoreError> {
        let more = self.engine.sweep(self.clock.now()).await?;
        let shared_jobs = self.is_shared() && self.engine.look_around().await?;
        Ok(Found { more, shared_jobs })
    }

    async fn sample(&self) {
        let Ok(queues) = self.engine.queue_states().await else { return };
        let now = self.clock.now();
        let samples = queues.into_iter().map(|queue| QueueSample {
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

/// Logs when the store stops answering and when it answers again, once each.
fn note(answers: &watch::Sender<bool>, found: &Result<Found, StoreError>) {
    let changed = answers.send_if_modified(|answers| std::mem::replace(answers, found.is_ok()) != found.is_ok());
    match found {
        Err(error) if changed => warn!(%error, "the store of workflows does not answer; trying again"),
        Ok(_) if changed => info!("the store of workflows answers again"),
        _ => {}
    }
}
