//! Heartbeat of this server, which also reads the store's time, and the detector of gaps in which
//! workers could not reach this server: after its start, a pause of its process, or a jump of its
//! clock.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_api::{ApiMetrics, CountedEvent};
use tidegate_workflow::{Engine, HeartbeatQuery, ServerDescription, Store, Timestamp};
use tokio::time::{Instant, sleep, timeout};

use super::clock::StoreClock;
use crate::base::sync::lock;

/// Mean interval of heartbeats. Each is random within a quarter of it, so that servers do not send
/// them at one time.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(2);
/// Number of heartbeats from one reading of the store's time to the next: 10 s. A quartz drifts by
/// less than 1 ms meanwhile.
const HEARTBEATS_PER_TIME_READ: usize = 5;
/// Timeout of a heartbeat. A slower store is logged by `store_probe`.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout of the message that this server leaves.
const LEAVE_TIMEOUT: Duration = Duration::from_millis(500);

/// Minimum pause of the process that counts as a gap. Workers extend the shortest lease of 5 s
/// after a third of it, so a shorter pause costs no lease. Each heartbeat checks for a gap, at most
/// 2.5 s apart.
const MIN_GAP: Duration = Duration::from_secs(3);

/// Sends heartbeats until the future is dropped. Without Redis there are no other servers, and the
/// clock of this machine is used.
pub(super) async fn run(gaps: &GapDetector, about: ServerDescription, activity: Arc<ApiMetrics>) {
    let GapDetector { engine, clock, .. } = gaps;
    let mut warned = false;
    let mut conflicts = 0;
    let mut woken = 0;
    for beat in 0_usize.. {
        activity.put_clock_skew(clock.skew());
        if matches!(engine.store(), Store::Redis(_)) {
            send(gaps, &about, beat).await;
        }
        let add_new = |event, seen: &mut u64, total: u64| {
            activity.add(event, total - std::mem::replace(seen, total));
        };
        add_new(CountedEvent::Conflict, &mut conflicts, engine.conflicts());
        add_new(CountedEvent::WakeUp, &mut woken, engine.wake_ups());
        // A store that did not answer is no gap: this server was running.
        gaps.check();
        clock.log_step();
        clock.log_skew(&mut warned);
        tokio::select! {
            () = sleep(HEARTBEAT_INTERVAL.mul_f64(0.75 + fastrand::f64() / 2.0)) => {}
            () = engine.members_changed() => {}
        }
    }
}

/// Sends heartbeat number `beat`, and applies the store's time if the answer has it.
async fn send(gaps: &GapDetector, about: &ServerDescription, beat: usize) {
    let query = if beat.is_multiple_of(HEARTBEATS_PER_TIME_READ) {
        HeartbeatQuery::StoreTime
    } else {
        HeartbeatQuery::MembersOnly
    };
    let sent = Instant::now();
    let heartbeat = gaps.engine.heartbeat(about, gaps.check(), query);
    // Other servers ignore a server without heartbeats, and the time continues without an answer.
    if let Ok(Ok(Some(time))) = timeout(HEARTBEAT_TIMEOUT, heartbeat).await {
        let now = Instant::now();
        gaps.clock.apply_reading(time.micros(), sent, now);
    }
}

/// Notifies the other servers that this server leaves.
pub(super) async fn leave(engine: &Engine) {
    // They also notice it by missing heartbeats.
    let _late = timeout(LEAVE_TIMEOUT, engine.leave()).await;
}

/// Reports gaps to the engine, in which workers could not reach this server.
pub(super) struct GapDetector {
    engine: Engine,
    clock: StoreClock,
    /// Time of the last check.
    checked: Mutex<Option<Instant>>,
}

impl GapDetector {
    pub(super) fn new(engine: Engine, clock: StoreClock) -> Self {
        Self {
            engine,
            clock,
            checked: Mutex::new(None),
        }
    }

    /// Returns the current time. If a gap ends now, the engine is notified before it does any work
    /// at this time.
    pub(super) fn check(&self) -> Timestamp {
        let now = self.clock.now();
        let moment = Instant::now();
        let last = lock(&self.checked).replace(moment);
        let stood = last.is_none_or(|last| moment.saturating_duration_since(last) >= MIN_GAP);
        if self.clock.take_jump() || stood {
            self.engine.begin_serving(now);
        }
        now
    }
}
