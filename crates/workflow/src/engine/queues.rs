//! The ready jobs that this server knows of, and the workers that wait for one. Only the store is right: what is here may be out of
//! date. A claim of a job that is gone is refused, and costs nothing else.

pub(crate) mod blocked_limits;
mod candidates;
pub(crate) mod demand;
pub(crate) mod dequeue;
pub(crate) mod excluded_jobs;
mod interest;
mod known_jobs;
mod lane;
mod limited;
mod paused;
mod quarantine;
mod queue;
pub(crate) mod ready_jobs;
pub(crate) mod refill;
mod refill_target;
mod round_robin;
mod scheduler;
mod waiting;
pub(crate) mod waiting_claim;
mod weights;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hashbrown::HashMap;
use tokio::sync::Notify;

use self::blocked_limits::BlockedLimits;
pub(crate) use self::dequeue::{ClaimEnd, DequeueRequest, DequeuedJob};
pub use self::paused::Paused;
use self::quarantine::Quarantine;
use self::queue::Queue;
use self::ready_jobs::Room;
use self::refill::{RefillRows, RefillStart, Refilled};
pub use self::refill_target::ClaimMode;
pub(crate) use self::refill_target::{PartitionScope, RefillTarget};
use self::round_robin::RoundRobin;
use self::weights::Weights;
use super::membership::partitions::LocalPartitions;
use crate::codec::rows::{ReadyRow, Row};
use crate::time::Timestamp;

/// How long a queue counts as served after a worker asked for it: workers that are busy ask again later.
const SERVED_TTL: Duration = Duration::from_secs(120);

/// From this number of queues on, those without jobs and workers are forgotten: a worker may ask for any name.
const MAX_IDLE_QUEUES: usize = 1_024;

/// Memory for the keys of limits of all queues.
const MAX_KEY_BYTES: usize = 64 << 20;
/// The ready jobs that this server knows of.
#[derive(Debug)]
pub(crate) struct QueueCache {
    mine: Arc<LocalPartitions>,
    /// Whether what other servers make ready is heard of, or there are none.
    notified_of_all: AtomicBool,
    /// Whether somebody was told that a worker waits.
    waiter_announced: AtomicBool,
    /// Notified when a worker waits and nobody was told.
    waiter_arrived: Notify,
    by_name: Mutex<HashMap<String, Queue>>,
    aside: Mutex<Quarantine>,
    closings: Mutex<BlockedLimits>,
    room: Room,
    /// How the keys of queues weigh. To be locked after `each`, or without it.
    weights: Mutex<HashMap<String, Arc<Weights>>>,
    /// Notified when a limit has no room any more, which may have some again before others.
    closed: Notify,
    turns: RoundRobin,
    /// The time of the latest sweep or claim, in microseconds.
    now: AtomicU64,
    /// Notified when a queue is to be read again.
    refill_needed: Notify,
    /// Whether somebody was told that a worker takes jobs.
    told_of_work: AtomicBool,
    /// Notified when a worker takes jobs and nobody was told.
    claim_started: Notify,
    /// When a worker last began to wait.
    waited_at: AtomicU64,
    /// How often a worker that waited was woken.
    woken: AtomicU64,
    /// How many workers wait that take jobs as they become ready.
    takers: AtomicUsize,
}

impl QueueCache {
    pub(crate) fn new(mine: Arc<LocalPartitions>) -> Self {
        Self {
            mine,
            notified_of_all: AtomicBool::new(true),
            waiter_announced: AtomicBool::default(),
            waiter_arrived: Notify::default(),
            by_name: Mutex::default(),
            aside: Mutex::default(),
            closings: Mutex::default(),
            room: Room::new(MAX_KEY_BYTES),
            weights: Mutex::default(),
            closed: Notify::default(),
            turns: RoundRobin::default(),
            now: AtomicU64::default(),
            refill_needed: Notify::default(),
            told_of_work: AtomicBool::default(),
            claim_started: Notify::default(),
            waited_at: AtomicU64::default(),
            woken: AtomicU64::default(),
            takers: AtomicUsize::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Queue>> {
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// To be locked after `each`, or without it.
    fn aside(&self) -> MutexGuard<'_, Quarantine> {
        self.aside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Likewise.
    fn closings(&self) -> MutexGuard<'_, BlockedLimits> {
        self.closings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The queue of a name. Before the map grows, it forgets queues without jobs and workers.
    fn entry<'a>(&self, each: &'a mut HashMap<String, Queue>, name: &str) -> &'a mut Queue {
        if each.len() >= MAX_IDLE_QUEUES
            && each.len() == each.capacity()
            && !each.contains_key(name)
        {
            each.retain(|_, queue| !queue.is_idle());
        }
        each.entry_ref(name)
            .or_insert_with(|| Queue::new(self.room.clone(), self.weights_of(name)))
    }

    /// Sets the time of the latest sweep.
    pub(crate) fn set_time(&self, now: Timestamp) {
        self.now.store(now.micros(), Relaxed);
    }

    /// It is `now`, if nobody knows of a later time.
    pub(crate) fn advance(&self, now: Timestamp) {
        self.now.fetch_max(now.micros(), Relaxed);
    }

    pub(crate) fn wake_ups(&self) -> u64 {
        self.woken.load(Relaxed)
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.now.load(Relaxed))
    }

    /// Removes and adds rows, and wakes one waiting worker for each new job.
    pub(crate) fn change(&self, remove: &[Row], add: &[Row]) {
        if remove.is_empty() && add.is_empty() {
            return;
        }
        let mut each = self.lock();
        for row in remove.iter().filter_map(|row| ReadyRow::read(row)) {
            if let Some(queue) = each.get_mut(row.queue) {
                queue.remove_row(&row);
            }
        }
        for row in add.iter().filter_map(|row| ReadyRow::read(row)) {
            let queue = self.entry(&mut each, row.queue);
            let key = queue.lanes.key_of(&row);
            if self.mine.contains(row.place.workflow().partition()) || queue.is_wanted() {
                queue.insert(&key, row.place, &self.mine, self.now());
                queue.wake_for(&key, &row.place);
            } else {
                queue.leave(&key, row.place, &self.mine);
            }
        }
    }

    /// Another server takes these, or tries to: should one of them be there all the same, the next read finds it.
    pub(crate) fn on_remote_claim(&self, rows: &[Row]) {
        let mut each = self.lock();
        for row in rows.iter().filter_map(|row| ReadyRow::read(row)) {
            if let Some(queue) = each.get_mut(row.queue) {
                let key = queue.lanes.key_of(&row);
                queue.remove(&key, &row.place);
                queue.doubt_lane(&key, row.place.workflow().partition(), &self.mine);
            }
        }
    }

    /// Takes over what a read found of a queue.
    fn refill(&self, name: &str, began: RefillStart, found: &RefillRows) -> Refilled {
        let mut each = self.lock();
        let queue = self.entry(&mut each, name);
        queue.asked = Some(self.now());
        let refilled = queue.reconcile(began, found, (&mut self.aside(), &self.mine), self.now());
        queue.wake_all(&refilled.new);
        refilled
    }

    /// Queues that a worker waits for and that were resumed, or of which a claim failed, since they were last read.
    pub(crate) fn failed(&self) -> Vec<String> {
        let mut each = self.lock();
        each.iter_mut()
            .filter_map(|(name, queue)| (queue.failed && queue.is_wanted()).then(|| name.clone()))
            .collect()
    }

    /// Whether there are none of these, and no jobs are passed over until the store works.
    pub(crate) fn are_well(&self) -> bool {
        !self
            .lock()
            .values_mut()
            .any(|queue| queue.failed && queue.is_wanted())
            && self.aside().is_written()
    }

    /// Returns when there are some again, or may be.
    pub(crate) async fn wait_for_refill(&self) {
        self.refill_needed.notified().await;
    }

    /// How many jobs of a queue are known here.
    pub(crate) fn known(&self, name: &str) -> usize {
        self.lock().get(name).map_or(0, |queue| queue.lanes.len())
    }

    /// Whether a job of one of these queues is known here that a worker may have.
    pub(crate) fn has_runnable(&self, names: &[String]) -> bool {
        let each = self.lock();
        let has_some = |queue: &Queue| !queue.paused && queue.lanes.open() > 0;
        names
            .iter()
            .filter_map(|name| each.get(name.as_str()))
            .any(has_some)
    }

    /// At most `most` of these queues: they take turns.
    pub(crate) fn in_turn(&self, names: Vec<String>, most: usize) -> Vec<String> {
        self.turns.next(names, most)
    }

    /// The store may have jobs of any queue that are not known here.
    pub(crate) fn doubt_all(&self) {
        self.lock().values_mut().for_each(Queue::mark_incomplete);
    }

    /// Whether what other servers make ready is heard of, or there are none. If not, what is known here is never all.
    pub(crate) fn trust(&self, trusted: bool) {
        self.notified_of_all.store(trusted, Relaxed);
    }

    /// Sorts what is known again after other partitions have come home.
    pub(crate) fn sort_out(&self) {
        self.lock()
            .values_mut()
            .for_each(|queue| queue.sort_out(&self.mine));
    }

    /// Whether other servers are the homes of some partitions.
    pub(crate) fn are_shared(&self) -> bool {
        self.mine.is_partial()
    }

    /// Wakes one waiter of a queue that has something, or may have.
    pub(crate) fn wake_one(&self, name: &str) {
        let now = self.now();
        if let Some(queue) = self.lock().get_mut(name) {
            let woken = queue.lanes.open() > 0 && queue.wake_one();
            // Whoever leaves may have been woken to read it.
            if !woken && !queue.paused && queue.complete.is_due(PartitionScope::All, now) {
                queue.wake_any();
            }
        }
    }

    /// Whether a job of this priority may be leased without entering the queue: not when the queue is paused or has a more urgent
    /// job.
    pub(crate) fn may_hand_over(&self, name: &str, priority: u8) -> bool {
        let mut each = self.lock();
        let Some(queue) = each.get_mut(name) else {
            return true;
        };
        queue.asked = Some(self.now());
        queue.is_free_for(priority)
    }

    /// A queue that is not paused any more is to be read again: what is known of it may be old. [`QueueCache::failed`] names it until then, and the
    /// read wakes those who wait.
    pub(crate) fn set_paused(&self, name: &str, paused: Paused) {
        let mut each = self.lock();
        let queue = self.entry(&mut each, name);
        if std::mem::replace(&mut queue.paused, paused == Paused::Yes) && !queue.paused {
            queue.lanes.forget_all();
            queue.mark_incomplete();
            queue.failed = true;
            self.refill_needed.notify_one();
        }
    }

    /// The queues that are paused.
    pub(crate) fn paused(&self) -> Vec<String> {
        self.lock()
            .iter()
            .filter(|(_, queue)| queue.paused)
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// Those of `names` that are paused, and those that a worker waits for or has asked for lately.
    pub(crate) fn paused_and_served(&self, names: &[String]) -> (Vec<String>, Vec<String>) {
        let mut each = self.lock();
        let mut paused = Vec::new();
        let mut served = Vec::new();
        for name in names {
            if let Some(queue) = each.get_mut(name.as_str()) {
                paused.extend(queue.paused.then(|| name.clone()));
                let lately = queue
                    .asked
                    .is_some_and(|asked| self.now().since(asked) <= SERVED_TTL);
                served.extend((queue.is_wanted() || lately).then(|| name.clone()));
            }
        }
        (paused, served)
    }

    /// How many workers wait for jobs of a queue.
    pub(crate) fn waiting_workers(&self, name: &str) -> usize {
        self.lock().get_mut(name).map_or(0, |queue| {
            if queue.is_wanted() {
                queue.waiting.len()
            } else {
                0
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::excluded_jobs::ExcludedJobs;
    use super::*;

    #[test]
    fn names_that_nobody_uses_are_forgotten() {
        let queues = QueueCache::new(Arc::new(LocalPartitions::all(1)));
        let names = |from: usize| {
            (from..from + 100)
                .map(|at| format!("q{at}"))
                .collect::<Vec<_>>()
        };
        queues.set_paused("paused", Paused::Yes);
        let kept = ["kept".to_owned()];
        let _waiting = queues.wait(&kept, None, ExcludedJobs::default(), None);
        for from in (0..100_000).step_by(100) {
            let names = names(from);
            drop(queues.wait(&names, None, ExcludedJobs::default(), None));
            queues
                .read(&names)
                .finish(names.iter().map(|_| RefillRows::default()));
        }
        assert!(
            queues.lock().len() < 4 * MAX_IDLE_QUEUES,
            "{} are known",
            queues.lock().len()
        );
        assert_eq!(
            queues.paused_and_served(&["paused".to_owned()]).0,
            ["paused"]
        );
        assert_eq!(queues.waiting_workers("kept"), 1);
    }
}
