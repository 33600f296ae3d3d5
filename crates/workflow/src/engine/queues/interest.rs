//! Whether workers wait for jobs here, and of which queues. Jobs that other servers make ready
//! matter only then.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::queue::Queue;
use super::ready_jobs::LaneKey;
use super::{QueueCache, RefillTarget};
use crate::store::change_notice::{ReadyQueues, read_name};
use crate::time::Timestamp;

/// Time for which a worker that stopped waiting is expected back.
const EXPECTED: Duration = Duration::from_secs(10);
/// Time for which a queue counts as busy after a request of a worker.
const BUSY: Duration = Duration::from_secs(2);

impl QueueCache {
    /// Records that a worker waits.
    pub(super) fn note_waiting(&self) {
        self.waited_at.store(self.now().micros(), Relaxed);
        if !self.waiter_announced.swap(true, Relaxed) {
            self.waiter_arrived.notify_one();
        }
    }

    /// Waits until a worker waits, if none did for a while. Only one task at a time may wait.
    pub(crate) async fn is_waited_for(&self) {
        self.waiter_arrived.notified().await;
    }

    /// Whether a worker waits, or waited not long ago. If not, [`QueueCache::wait_for_waiter`]
    /// returns when the next one does.
    pub(crate) fn expects_workers(&self, now: Timestamp) -> bool {
        let waited = Timestamp::from_micros(self.waited_at.load(Relaxed));
        if now.since(waited) <= EXPECTED {
            return true;
        }
        self.waiter_announced.store(false, Relaxed);
        // A worker may have begun to wait before the flag was cleared, or may have waited all the
        // time.
        let waits = self.is_any_wanted();
        self.waiter_announced.fetch_or(waits, Relaxed);
        waits
    }

    /// Records that a worker claims jobs.
    pub(super) fn note_work(&self) {
        if !self.told_of_work.load(Relaxed) && !self.told_of_work.swap(true, Relaxed) {
            self.claim_started.notify_one();
        }
    }

    /// Waits until a worker claims jobs, if [`QueueCache::busy`] returned no queue before. Only one
    /// task at a time may wait.
    pub(crate) async fn is_worked_on(&self) {
        self.claim_started.notified().await;
    }

    /// Whether a worker waits for any queue.
    pub(crate) fn is_any_wanted(&self) -> bool {
        self.lock().values_mut().any(Queue::is_wanted)
    }

    /// Returns the announced queues of which a worker here may want the new jobs: it waits, or the
    /// jobs are more urgent than the known ones. The other queues are marked as incomplete.
    pub(crate) fn wanted(&self, news: &ReadyQueues) -> Vec<RefillTarget> {
        let mut each = self.lock();
        let now = self.now();
        let mut wanted = Vec::new();
        let mut look = |name: &str, queue: &mut Queue, priority: u8, lane: Option<LaneKey>| {
            let busy = queue.asked.is_some_and(|asked| now.since(asked) <= BUSY);
            let urgent = priority > 0
                && queue
                    .lanes
                    .first_free()
                    .is_none_or(|head| head.priority() < priority);
            if !queue.paused && ((busy && urgent) || queue.is_wanted()) {
                wanted.push(RefillTarget {
                    queue: name.to_owned(),
                    lanes: lane.map(|lane| vec![lane]),
                });
            } else if let Some(lane) = lane {
                queue.doubt_everywhere(&lane);
            } else {
                queue.mark_incomplete();
            }
        };
        match news {
            ReadyQueues::Queues(queues) => {
                for (name, priority) in queues {
                    let (name, lane) = read_name(name);
                    if let Some(queue) = each.get_mut(name) {
                        let lane = lane.map(|(handler, limits)| LaneKey {
                            limits: limits.into(),
                            handler: handler.into(),
                        });
                        look(name, queue, *priority, lane);
                    }
                }
            }
            ReadyQueues::AllQueues => each
                .iter_mut()
                .for_each(|(name, queue)| look(name, queue, u8::MAX, None)),
        }
        wanted
    }

    /// Returns the queues that busy workers request and that have local jobs. Nothing is read of
    /// these while that lasts. If there are none, [`QueueCache::wait_for_claim`] returns at the
    /// next claim.
    pub(crate) fn busy(&self) -> Vec<String> {
        // Cleared before the check, so that a claim during the check is announced.
        self.told_of_work.store(false, Relaxed);
        let each = self.lock();
        let now = self.now();
        let busy = |queue: &Queue| {
            let asked = queue.asked.is_some_and(|asked| now.since(asked) <= BUSY);
            asked && !queue.paused && queue.lanes.has_here()
        };
        let busy: Vec<String> = each
            .iter()
            .filter(|(_, queue)| busy(queue))
            .map(|(name, _)| name.clone())
            .collect();
        self.told_of_work.fetch_or(!busy.is_empty(), Relaxed);
        busy
    }
}
