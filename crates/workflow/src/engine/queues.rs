//! The ready jobs that this server knows of, and the workers that wait for one. This is a cache:
//! the store decides. A claim of a job that is gone from the store is refused and costs nothing
//! else.

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

/// Time after the last request of a worker during which its queue counts as served. Busy workers
/// request again sooner.
const SERVED_TTL: Duration = Duration::from_secs(120);

/// Number of known queues above which queues without jobs and workers are forgotten. A worker may
/// request any name, so unused names must not pile up.
const MAX_IDLE_QUEUES: usize = 1_024;

/// Memory for the keys of limits of all queues, in bytes.
const MAX_KEY_BYTES: usize = 64 << 20;
/// The ready jobs that this server knows of.
#[derive(Debug)]
pub(crate) struct QueueCache {
    mine: Arc<LocalPartitions>,
    /// Whether this server is notified of all jobs that other servers make ready, or is the only
    /// server.
    notified_of_all: AtomicBool,
    /// Whether it was announced that a worker waits.
    waiter_announced: AtomicBool,
    /// Notified when a worker begins to wait and that was not announced yet.
    waiter_arrived: Notify,
    by_name: Mutex<HashMap<String, Queue>>,
    aside: Mutex<Quarantine>,
    closings: Mutex<BlockedLimits>,
    room: Room,
    /// Weights of the limit keys of each queue. Lock order: after `by_name`, or without it.
    weights: Mutex<HashMap<String, Arc<Weights>>>,
    /// Notified when a limit is blocked: the earliest time of an unblock may have changed.
    closed: Notify,
    turns: RoundRobin,
    /// The time of the latest sweep or claim, in microseconds.
    now: AtomicU64,
    /// Notified when a queue must be read again.
    refill_needed: Notify,
    /// Whether it was announced that a worker claims jobs.
    told_of_work: AtomicBool,
    /// Notified when a worker claims jobs and that was not announced yet.
    claim_started: Notify,
    /// Time at which a worker last began to wait.
    waited_at: AtomicU64,
    /// Number of times that a waiting worker was woken.
    woken: AtomicU64,
    /// Number of waiting workers that accept leases of jobs as these become ready.
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

    /// Lock order: after `by_name`, or without it.
    fn aside(&self) -> MutexGuard<'_, Quarantine> {
        self.aside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lock order: after `by_name`, or without it.
    fn closings(&self) -> MutexGuard<'_, BlockedLimits> {
        self.closings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the queue of a name. Before the map grows, queues without jobs and workers are
    /// removed.
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

    /// Sets the time to `now`, unless a later time is known.
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

    /// Forgets jobs that another server claims or tries to claim. If one of them is still ready,
    /// the next read of its lane finds it.
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

    /// Merges the rows that a read found into a queue.
    fn refill(&self, name: &str, began: RefillStart, found: &RefillRows) -> Refilled {
        let mut each = self.lock();
        let queue = self.entry(&mut each, name);
        queue.asked = Some(self.now());
        let refilled = queue.reconcile(began, found, (&mut self.aside(), &self.mine), self.now());
        queue.wake_all(&refilled.new);
        refilled
    }

    /// Returns queues with waiting workers that were resumed, or of which a claim failed, since
    /// their last read.
    pub(crate) fn failed(&self) -> Vec<String> {
        let mut each = self.lock();
        each.iter_mut()
            .filter_map(|(name, queue)| (queue.failed && queue.is_wanted()).then(|| name.clone()))
            .collect()
    }

    /// Whether no queue must be read again for that reason and no workflow is quarantined until the
    /// store works.
    pub(crate) fn are_well(&self) -> bool {
        !self
            .lock()
            .values_mut()
            .any(|queue| queue.failed && queue.is_wanted())
            && self.aside().is_written()
    }

    /// Waits until a queue may need another read: a claim failed, a queue was resumed, or jobs are
    /// quarantined until the store works. May return without cause.
    pub(crate) async fn wait_for_refill(&self) {
        self.refill_needed.notified().await;
    }

    /// Number of jobs of a queue that are known here.
    pub(crate) fn known(&self, name: &str) -> usize {
        self.lock().get(name).map_or(0, |queue| queue.lanes.len())
    }

    /// Whether a runnable job of one of these queues is known here.
    pub(crate) fn has_runnable(&self, names: &[String]) -> bool {
        let each = self.lock();
        let has_some = |queue: &Queue| !queue.paused && queue.lanes.open() > 0;
        names
            .iter()
            .filter_map(|name| each.get(name.as_str()))
            .any(has_some)
    }

    /// Returns at most `limit` of these queues, in rotation.
    pub(crate) fn in_turn(&self, names: Vec<String>, most: usize) -> Vec<String> {
        self.turns.next(names, most)
    }

    /// Marks all queues as incomplete: the store may have jobs that are not known here.
    pub(crate) fn doubt_all(&self) {
        self.lock().values_mut().for_each(Queue::mark_incomplete);
    }

    /// Sets whether this server is notified of all jobs that other servers make ready, or is the
    /// only server. If not, the jobs known here never count as complete.
    pub(crate) fn trust(&self, trusted: bool) {
        self.notified_of_all.store(trusted, Relaxed);
    }

    /// Sorts the known jobs again into local and remote ones after partitions were reassigned.
    pub(crate) fn sort_out(&self) {
        self.lock()
            .values_mut()
            .for_each(|queue| queue.sort_out(&self.mine));
    }

    /// Whether some partitions are assigned to other servers.
    pub(crate) fn are_shared(&self) -> bool {
        self.mine.is_partial()
    }

    /// Wakes one worker that waits for a queue with jobs, or for one that may have jobs.
    pub(crate) fn wake_one(&self, name: &str) {
        let now = self.now();
        if let Some(queue) = self.lock().get_mut(name) {
            let woken = queue.lanes.open() > 0 && queue.wake_one();
            // The worker that leaves may have been woken to read the queue.
            if !woken && !queue.paused && queue.complete.is_due(PartitionScope::All, now) {
                queue.wake_any();
            }
        }
    }

    /// Whether a job of this priority may be leased without entering the queue. It may not if the
    /// queue is paused or has a more urgent job.
    pub(crate) fn may_hand_over(&self, name: &str, priority: u8) -> bool {
        let mut each = self.lock();
        let Some(queue) = each.get_mut(name) else {
            return true;
        };
        queue.asked = Some(self.now());
        queue.is_free_for(priority)
    }

    /// Pauses or resumes a queue. A resumed queue is read again, because its known jobs may be old.
    /// [`QueueCache::queues_to_refill`] lists it until then, and the read wakes the waiting
    /// workers.
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

    /// Returns the names of paused queues.
    pub(crate) fn paused(&self) -> Vec<String> {
        self.lock()
            .iter()
            .filter(|(_, queue)| queue.paused)
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// Returns the paused queues of `names`, and those that a worker waits for or requested lately.
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

    /// Number of workers that wait for jobs of a queue.
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
