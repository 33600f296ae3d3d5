//! Which queues workers want jobs of. Jobs that other servers make ready matter only then.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::{QueueCache, RefillTarget};
use crate::model::Timestamp;
use crate::queue::{LaneKey, Queue};
use crate::store::{ReadyQueues, parse_queue_or_lane};

/// Time for which a queue counts as busy after a request of a worker.
const BUSY_TTL: Duration = Duration::from_secs(2);

impl QueueCache {
    /// Records that a worker claims jobs.
    pub(crate) fn record_claim(&self) {
        if !self.claim_announced.load(Relaxed) && !self.claim_announced.swap(true, Relaxed) {
            self.claim_started.notify_one();
        }
    }

    /// Waits until a worker claims jobs, if [`QueueCache::busy_queues`] returned no queue before.
    /// Only one task at a time may wait.
    pub(crate) async fn wait_for_claim(&self) {
        self.claim_started.notified().await;
    }

    /// Returns the announced queues of which a worker here may want the new jobs: it waits, or the
    /// jobs are more urgent than the known ones. The other queues are marked as incomplete.
    pub(crate) fn wanted_refills(&self, announced: &ReadyQueues) -> Vec<RefillTarget> {
        let mut by_name = self.lock();
        let now = self.now();
        match announced {
            ReadyQueues::Queues(queues) => {
                let wanted = |(name, priority): &(String, u8)| {
                    let (name, lane) = parse_queue_or_lane(name);
                    let lane = lane.map(|(handler, limits)| LaneKey {
                        limits: limits.into(),
                        handler: handler.into(),
                    });
                    wanted_refill(name, by_name.get_mut(name)?, *priority, lane, now)
                };
                queues.iter().filter_map(wanted).collect()
            }
            ReadyQueues::AllQueues => by_name
                .iter_mut()
                .filter_map(|(name, queue)| wanted_refill(name, queue, u8::MAX, None, now))
                .collect(),
        }
    }

    /// Returns the queues that busy workers request and that have local jobs. Their claims do not
    /// read other partitions. If there are none, [`QueueCache::wait_for_claim`] returns at the
    /// next claim.
    pub(crate) fn busy_queues(&self) -> Vec<String> {
        // Cleared before the check, so that a claim during the check is announced.
        self.claim_announced.store(false, Relaxed);
        let by_name = self.lock();
        let now = self.now();
        let busy = |queue: &Queue| {
            is_busy(queue, now) && !queue.paused && queue.ready_jobs.has_local_jobs()
        };
        let busy: Vec<String> = by_name
            .iter()
            .filter(|(_, queue)| busy(queue))
            .map(|(name, _)| name.clone())
            .collect();
        self.claim_announced.fetch_or(!busy.is_empty(), Relaxed);
        busy
    }
}

/// Whether a worker requested jobs of a queue lately.
fn is_busy(queue: &Queue, now: Timestamp) -> bool {
    queue
        .last_requested_at
        .is_some_and(|at| now.since(at) <= BUSY_TTL)
}

/// Whether a worker may want new jobs of this priority at once.
fn wants_new_jobs(queue: &mut Queue, priority: u8, now: Timestamp) -> bool {
    let first = queue.ready_jobs.first_unlimited();
    let is_urgent = priority > 0 && first.is_none_or(|first| first.priority() < priority);
    !queue.paused && ((is_urgent && is_busy(queue, now)) || queue.has_waiters())
}

/// Returns what is to be read of a queue, or of one lane of it, if a worker may want the new jobs.
/// Marks it as incomplete if not.
fn wanted_refill(
    name: &str,
    queue: &mut Queue,
    priority: u8,
    lane: Option<LaneKey>,
    now: Timestamp,
) -> Option<RefillTarget> {
    if wants_new_jobs(queue, priority, now) {
        return Some(RefillTarget {
            queue: name.to_owned(),
            lanes: lane.map(|lane| vec![lane]),
        });
    }
    match lane {
        Some(lane) => queue.mark_lane_incomplete_everywhere(&lane),
        None => queue.mark_incomplete(),
    }
    None
}
