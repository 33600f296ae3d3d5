//! Whether workers wait for jobs here, and for which: what other servers make ready matters only then.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::queue::Queue;
use super::ready_jobs::LaneKey;
use super::{QueueCache, RefillTarget};
use crate::store::change_notice::{ReadyQueues, read_name};
use crate::time::Timestamp;

/// How long a worker that waits no more is expected back.
const EXPECTED: Duration = Duration::from_secs(10);
/// How long a queue counts as busy after a worker asked for it.
const BUSY: Duration = Duration::from_secs(2);

impl QueueCache {
    /// Notes that a worker waits.
    pub(super) fn note_waiting(&self) {
        self.waited_at.store(self.now().micros(), Relaxed);
        if !self.waiter_announced.swap(true, Relaxed) {
            self.waiter_arrived.notify_one();
        }
    }

    /// Returns when a worker waits, if none did for a while. Only one task at a time may wait.
    pub(crate) async fn is_waited_for(&self) {
        self.waiter_arrived.notified().await;
    }

    /// Whether a worker waits, or waited not long ago. When not, [`QueueCache::is_waited_for`] tells of the next one.
    pub(crate) fn expects_workers(&self, now: Timestamp) -> bool {
        let waited = Timestamp::from_micros(self.waited_at.load(Relaxed));
        if now.since(waited) <= EXPECTED {
            return true;
        }
        self.waiter_announced.store(false, Relaxed);
        // A worker may have come just now, before that, or it has waited all the time.
        let waits = self.is_any_wanted();
        self.waiter_announced.fetch_or(waits, Relaxed);
        waits
    }

    /// Notes that a worker takes jobs.
    pub(super) fn note_work(&self) {
        if !self.told_of_work.load(Relaxed) && !self.told_of_work.swap(true, Relaxed) {
            self.claim_started.notify_one();
        }
    }

    /// Returns when a worker takes jobs, if [`QueueCache::busy`] named nothing before. Only one task at a time may wait.
    pub(crate) async fn is_worked_on(&self) {
        self.claim_started.notified().await;
    }

    /// Whether a worker waits for any queue.
    pub(crate) fn is_any_wanted(&self) -> bool {
        self.lock().values_mut().any(Queue::is_wanted)
    }

    /// Those of the queues of which a worker here may want the jobs that became ready elsewhere: because it waits, or because they are more
    /// urgent than what is known here. Of the others it is noted that there may be more.
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

    /// The queues that busy workers ask for and that have jobs at home here: of these nothing is read as long as that lasts. When there are
    /// none, [`QueueCache::is_worked_on`] tells of the next job that is taken.
    pub(crate) fn busy(&self) -> Vec<String> {
        // Before the look: what is taken meanwhile is told of.
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
