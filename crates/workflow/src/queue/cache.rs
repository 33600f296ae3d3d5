//! The ready jobs that this server knows of, and the workers that wait for one. This is a cache:
//! the store decides. A claim of a job that is gone from the store is refused and costs nothing
//! else.

mod paused;
mod worker_interest;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::HashMap;
use tokio::sync::Notify;

pub use self::paused::Paused;
pub(crate) use super::dequeue::{ClaimEnd, DequeueRequest, DequeuedJob};
pub use super::refill::refill_target::ClaimMode;
pub(crate) use super::refill::refill_target::{PartitionScope, Reach, RefillDepth, RefillTarget};
use super::refill::round_robin::RoundRobin;
use super::scheduler::weights::Weights;
use super::{
    BlockedLimits, KeyMemory, LocalPartitions, Quarantine, Queue, RefillResult, RefillRows,
};
use crate::codec::{ReadyRow, Row};
use crate::model::Timestamp;

/// Number of known queues above which queues without jobs and workers are forgotten. A worker may
/// request any name, so unused names must not pile up.
const MAX_IDLE_QUEUES: usize = 1_024;

/// Memory for the keys of limits of all queues, in bytes.
const MAX_KEY_BYTES: usize = 64 << 20;

/// The ready jobs that this server knows of.
#[derive(Debug)]
pub(crate) struct QueueCache {
    pub(crate) local_partitions: Arc<LocalPartitions>,
    /// Whether this server is notified of all jobs that other servers make ready, or is the only
    /// server.
    pub(crate) notified_of_all: AtomicBool,
    by_name: Mutex<HashMap<String, Queue>>,
    quarantine: Mutex<Quarantine>,
    blocked_limits: Mutex<BlockedLimits>,
    key_memory: KeyMemory,
    /// Weights of the limit keys of each queue. Lock order: after `by_name`, or without it.
    pub(crate) weights: Mutex<HashMap<String, Arc<Weights>>>,
    /// Notified when a limit is blocked: the earliest time of an unblock may have changed.
    pub(crate) limit_blocked: Notify,
    round_robin: RoundRobin,
    /// The time of the latest sweep or claim, in microseconds.
    now: AtomicU64,
    /// Notified when a queue must be read again.
    pub(crate) refill_needed: Notify,
    /// Whether it was announced that a worker claims jobs.
    claim_announced: AtomicBool,
    /// Notified when a worker claims jobs and that was not announced yet.
    claim_started: Notify,
    /// Number of times that a waiting worker was woken.
    pub(crate) wake_ups: AtomicU64,
    /// Number of waiting workers that accept leases of jobs as these become ready.
    pub(crate) waiting_claims: AtomicUsize,
}

impl QueueCache {
    pub(crate) fn new(local_partitions: Arc<LocalPartitions>) -> Self {
        Self {
            local_partitions,
            notified_of_all: AtomicBool::new(true),
            by_name: Mutex::default(),
            quarantine: Mutex::default(),
            blocked_limits: Mutex::default(),
            key_memory: KeyMemory::new(MAX_KEY_BYTES),
            weights: Mutex::default(),
            limit_blocked: Notify::default(),
            round_robin: RoundRobin::default(),
            now: AtomicU64::default(),
            refill_needed: Notify::default(),
            claim_announced: AtomicBool::default(),
            claim_started: Notify::default(),
            wake_ups: AtomicU64::default(),
            waiting_claims: AtomicUsize::default(),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, HashMap<String, Queue>> {
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lock order: after `by_name`, or without it.
    pub(crate) fn quarantine(&self) -> MutexGuard<'_, Quarantine> {
        self.quarantine
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Lock order: after `by_name`, or without it.
    pub(crate) fn blocked_limits(&self) -> MutexGuard<'_, BlockedLimits> {
        self.blocked_limits
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the queue of a name. Before the map grows, queues without jobs and workers are
    /// removed.
    pub(crate) fn queue_mut<'a>(
        &self,
        by_name: &'a mut HashMap<String, Queue>,
        name: &str,
    ) -> &'a mut Queue {
        if by_name.len() >= MAX_IDLE_QUEUES
            && by_name.len() == by_name.capacity()
            && !by_name.contains_key(name)
        {
            by_name.retain(|_, queue| !queue.is_idle());
        }
        by_name
            .entry_ref(name)
            .or_insert_with(|| Queue::new(self.key_memory.clone(), self.weights_for(name)))
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
        self.wake_ups.load(Relaxed)
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.now.load(Relaxed))
    }

    /// Removes and adds rows, and wakes one waiting worker for each new job.
    pub(crate) fn apply_rows(&self, remove: &[Row], add: &[Row]) {
        if remove.is_empty() && add.is_empty() {
            return;
        }
        let mut by_name = self.lock();
        for row in remove.iter().filter_map(|row| ReadyRow::read(row)) {
            if let Some(queue) = by_name.get_mut(row.queue) {
                queue.remove_row(&row);
            }
        }
        for row in add.iter().filter_map(|row| ReadyRow::read(row)) {
            let queue = self.queue_mut(&mut by_name, row.queue);
            let key = queue.ready_jobs.lane_key(&row);
            if self
                .local_partitions
                .contains(row.key.workflow().partition())
                || queue.has_waiters()
            {
                queue.insert(&key, row.key, &self.local_partitions, self.now());
                queue.wake_for(&key, &row.key);
            } else {
                queue.skip_remote(&key, row.key, &self.local_partitions);
            }
        }
    }

    /// Merges the rows that a read found into a queue.
    pub(crate) fn merge_refill(&self, name: &str, began: u64, found: &RefillRows) -> RefillResult {
        let mut by_name = self.lock();
        let queue = self.queue_mut(&mut by_name, name);
        queue.last_requested_at = Some(self.now());
        let refilled = queue.reconcile(
            began,
            found,
            (&mut self.quarantine(), &self.local_partitions),
            self.now(),
        );
        queue.wake_all(&refilled.new_jobs);
        refilled
    }

    /// Returns queues with waiting workers that were resumed, or of which a claim failed, since
    /// their last read.
    pub(crate) fn required_refills(&self) -> Vec<String> {
        let mut by_name = self.lock();
        by_name
            .iter_mut()
            .filter_map(|(name, queue)| {
                (queue.must_refill && queue.has_waiters()).then(|| name.clone())
            })
            .collect()
    }

    /// Whether no queue must be read again after a failure, and no workflow is quarantined until the
    /// store works.
    pub(crate) fn has_no_failures(&self) -> bool {
        !self
            .lock()
            .values_mut()
            .any(|queue| queue.must_refill && queue.has_waiters())
            && self.quarantine().none_await_store()
    }

    /// Waits until a queue may need another read: a claim failed, a queue was resumed, or jobs are
    /// quarantined until the store works. May return without cause.
    pub(crate) async fn wait_for_refill(&self) {
        self.refill_needed.notified().await;
    }

    /// Number of jobs of a queue that are known here.
    pub(crate) fn known_job_count(&self, name: &str) -> usize {
        self.lock()
            .get(name)
            .map_or(0, |queue| queue.ready_jobs.len())
    }

    /// Whether a runnable job of one of these queues is known here.
    pub(crate) fn has_runnable(&self, names: &[String]) -> bool {
        let by_name = self.lock();
        let is_runnable = |queue: &Queue| !queue.paused && queue.ready_jobs.runnable() > 0;
        names
            .iter()
            .filter_map(|name| by_name.get(name.as_str()))
            .any(is_runnable)
    }

    /// Returns at most `limit` of these queues, in rotation.
    pub(crate) fn next_queues(&self, names: Vec<String>, limit: usize) -> Vec<String> {
        self.round_robin.next(names, limit)
    }

    /// Marks all queues as incomplete: the store may have jobs that are not known here.
    pub(crate) fn mark_all_incomplete(&self) {
        self.lock().values_mut().for_each(Queue::mark_incomplete);
    }

    /// Sets whether this server is notified of all jobs that other servers make ready, or is the
    /// only server. If not, the jobs known here never count as complete.
    pub(crate) fn set_notified_of_all(&self, notified: bool) {
        self.notified_of_all.store(notified, Relaxed);
    }

    /// Sorts the known jobs again into local and remote ones after partitions were reassigned.
    pub(crate) fn reclassify(&self) {
        self.lock()
            .values_mut()
            .for_each(|queue| queue.reclassify(&self.local_partitions));
    }

    /// Whether some partitions are assigned to other servers.
    pub(crate) fn has_remote_partitions(&self) -> bool {
        self.local_partitions.is_partial()
    }

    /// Wakes one worker that waits for a queue with jobs, or for one that may have jobs.
    pub(crate) fn wake_one(&self, name: &str) {
        let now = self.now();
        if let Some(queue) = self.lock().get_mut(name) {
            let woken = queue.ready_jobs.runnable() > 0 && queue.wake_one();
            // The worker that leaves may have been woken to read the queue.
            if !woken && !queue.paused && !queue.completeness.covers(PartitionScope::All, now) {
                queue.wake_any();
            }
        }
    }

    /// Whether a job of this priority may be leased without entering the queue. It may not if the
    /// queue is paused or has a more urgent job.
    pub(crate) fn may_lease_directly(&self, name: &str, priority: u8) -> bool {
        let mut by_name = self.lock();
        let Some(queue) = by_name.get_mut(name) else {
            return true;
        };
        queue.last_requested_at = Some(self.now());
        queue.may_lease_directly(priority)
    }

    /// Pauses or resumes a queue. A resumed queue is read again, because its known jobs may be old.
    /// [`QueueCache::required_refills`] lists it until then, and the read wakes the waiting
    /// workers.
    pub(crate) fn set_paused(&self, name: &str, paused: Paused) {
        let mut by_name = self.lock();
        let queue = self.queue_mut(&mut by_name, name);
        if std::mem::replace(&mut queue.paused, paused == Paused::Yes) && !queue.paused {
            queue.forget_all();
            queue.must_refill = true;
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
        let mut by_name = self.lock();
        let mut paused = Vec::new();
        let mut served = Vec::new();
        for name in names {
            if let Some(queue) = by_name.get_mut(name.as_str()) {
                paused.extend(queue.paused.then(|| name.clone()));
                let is_served = queue.has_waiters() || queue.is_served(self.now());
                served.extend(is_served.then(|| name.clone()));
            }
        }
        (paused, served)
    }

    /// Number of workers that wait for jobs of a queue.
    pub(crate) fn waiting_workers(&self, name: &str) -> usize {
        self.lock().get_mut(name).map_or(0, |queue| {
            if queue.has_waiters() {
                queue.waiting.len()
            } else {
                0
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::ExcludedJobs;

    #[test]
    fn unused_names_are_forgotten() {
        let queues = QueueCache::new(Arc::new(LocalPartitions::all(1)));
        let names = |from: usize| {
            (from..from + 100)
                .map(|at| format!("q{at}"))
                .collect::<Vec<_>>()
        };
        queues.set_paused("paused", Paused::Yes);
        let kept = ["kept".to_owned()];
        let _waiting = queues.start_waiting(&kept, None, ExcludedJobs::default(), None);
        for from in (0..100_000).step_by(100) {
            let names = names(from);
            drop(queues.start_waiting(&names, None, ExcludedJobs::default(), None));
            queues
                .begin_refill(&names)
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
