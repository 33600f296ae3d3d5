//! Says again and again that this server lives, and reads the store's time with that.

use std::sync::Arc;
use std::time::Duration;

use tidegate_api::{Activity, Event};
use tidegate_workflow::{Engine, HeartbeatQuery, ServerDescription, Store};
use tokio::time::{Instant, sleep, timeout};

use super::gaps::GapDetector;

/// How often a server says that it lives, on average; by chance up to a quarter more or less, so that servers do not do so at the same time.
const APART: Duration = Duration::from_secs(2);
/// So often the time is asked for as well: every 10 s. A quartz drifts by less than 1 ms meanwhile.
const TIME: usize = 5;
/// How long it is waited for an answer. A store that takes longer is told of elsewhere.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long the end of this server waits for the others to hear of it.
const FAREWELL: Duration = Duration::from_millis(500);

/// Says so until it is dropped. Without Redis there is nobody to tell, and this machine's clock counts.
pub(super) async fn run(gaps: &GapDetector, about: ServerDescription, activity: Arc<Activity>) {
    let GapDetector { engine, clock, .. } = gaps;
    let mut warned = false;
    let mut conflicts = 0;
    let mut woken = 0;
    for beat in 0_usize.. {
        activity.put_clock_skew(clock.skew());
        if matches!(engine.store(), Store::Redis(_)) {
            let asks = if beat.is_multiple_of(TIME) {
                HeartbeatQuery::StoreTime
            } else {
                HeartbeatQuery::MembersOnly
            };
            let sent = Instant::now();
            // The others do not count on a server that they do not hear of, and the time goes on.
            if let Ok(Ok(Some(time))) =
                timeout(PATIENCE, engine.heartbeat(&about, gaps.check(), asks)).await
            {
                clock.take(time.micros(), sent, Instant::now());
            }
        }
        let seen = std::mem::replace(&mut conflicts, engine.conflicts());
        activity.add(Event::Conflict, conflicts - seen);
        let seen = std::mem::replace(&mut woken, engine.wake_ups());
        activity.add(Event::WakeUp, woken - seen);
        // A store that did not answer is no gap: this server was there.
        gaps.check();
        clock.log_step();
        clock.log_skew(&mut warned);
        tokio::select! {
            () = sleep(APART.mul_f64(0.75 + fastrand::f64() / 2.0)) => {}
            () = engine.servers_changed() => {}
        }
    }
}

/// Tells the others that this server ends.
pub(super) async fn end(engine: &Engine) {
    // They notice it by its silence, too.
    let _late = timeout(FAREWELL, engine.leave()).await;
}
