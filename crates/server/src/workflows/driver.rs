//! What drives time: sweeps when something is due, and looks for what other servers did.

use std::sync::Arc;
use std::time::Duration;

use tidegate_workflow::{Engine, HORIZON, Store, StoreError};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use crate::clock;
use crate::supervise::Life;
use tidegate_api::{Activity, QueueSample};

/// How often to look for what other servers did: the longest that a job they made ready waits for a worker that waits here.
const LOOK: Duration = Duration::from_millis(250);
/// How often while they give work to workers here: their jobs come in chains. A turn is three commands for each partition.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// How long after the last such job.
const SHARING: Duration = Duration::from_secs(5);
/// The least wait between two sweeps: many timers close together share one.
const BREATH: Duration = Duration::from_millis(5);
/// How often queues are sampled while somebody reads the metrics.
const SAMPLE: Duration = Duration::from_secs(5);

/// Drives the engine until the server stops. `answers` hears whether the store does.
pub(super) async fn run(engine: Engine, activity: Arc<Activity>, answers: watch::Sender<bool>, life: Life) {
    let shared = matches!(engine.store(), Store::Redis(_));
    let mut sampled = Instant::now();
    let mut sharing_until = Instant::now();
    loop {
        let turned = turn(&engine, shared).await;
        note(&answers, &turned);
        if matches!(turned, Ok(Turned { others: true, .. })) {
            sharing_until = Instant::now() + SHARING;
        }
        let longest = match shared {
            true if Instant::now() < sharing_until => LOOK_AGAIN,
            true => LOOK,
            false => HORIZON,
        };
        if sampled.elapsed() >= SAMPLE && activity.is_wanted() {
            sampled = Instant::now();
            sample(&engine, &activity).await;
        }
        let pause = match turned {
            Ok(Turned { more: true, .. }) => BREATH,
            Ok(Turned { more: false, .. }) => {
                engine.next_due().map_or(longest, |due| due.since(clock::moment()).clamp(BREATH, longest))
            }
            Err(_) => longest,
        };
        let wake = sleep(pause);
        tokio::pin!(wake);
        loop {
            tokio::select! {
                () = wake.as_mut() => break,
                () = engine.sooner() => {
                    let until_due = engine.next_due().map_or(longest, |due| due.since(clock::moment()).max(BREATH));
                    let sooner = Instant::now() + until_due;
                    if sooner < wake.deadline() {
                        wake.as_mut().reset(sooner);
                    }
                }
                () = life.stop.cancelled() => return,
            }
        }
    }
}

/// What a turn found.
struct Turned {
    /// More may be due already.
    more: bool,
    /// Other servers had work for workers that wait here.
    others: bool,
}

async fn turn(engine: &Engine, shared: bool) -> Result<Turned, StoreError> {
    let more = engine.sweep(clock::moment()).await?;
    let others = shared && engine.look_around().await?;
    Ok(Turned { more, others })
}

/// Logs when the store goes away and when it comes back, once each.
fn note(answers: &watch::Sender<bool>, turn: &Result<Turned, StoreError>) {
    let changed = answers.send_if_modified(|answers| std::mem::replace(answers, turn.is_ok()) != turn.is_ok());
    match turn {
        Err(error) if changed => warn!(%error, "the store of the workflows cannot be swept; trying on"),
        Ok(_) if changed => info!("the store of the workflows answers again"),
        _ => {}
    }
}

async fn sample(engine: &Engine, activity: &Activity) {
    let Ok(queues) = engine.queue_states().await else { return };
    let now = clock::moment();
    let samples = queues.into_iter().map(|queue| QueueSample {
        name: queue.name,
        ready: queue.ready,
        age: queue.oldest.map_or(0, |oldest| now.since(oldest).as_secs()),
        waiting_workers: queue.waiting_workers as u64,
    });
    activity.put_queues(samples.collect());
}
