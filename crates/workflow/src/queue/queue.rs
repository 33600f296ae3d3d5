//! The ready jobs of one queue, and the workers that wait for them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hashbrown::{HashMap, HashSet};
use tokio::sync::Notify;

use super::ready_jobs::lane::{Completeness, Lane, MoreRows};
use super::scheduler::weights::Weights;
use super::{
    ChangeLog, Delivery, ExcludedJobs, KeyMemory, LaneKey, LocalPartitions, PartitionRows,
    PassChange, Quarantine, QueueChange, ReadyJobs, RefillResult, RefillRows, WaitingClaim,
};
use crate::codec::{ReadyKey, ReadyRow, Row};
use crate::model::{Partition, Timestamp};

/// Time after the last request of a worker during which its queue counts as served. Busy workers
/// request again sooner.
const SERVED_TTL: Duration = Duration::from_secs(120);

#[derive(Debug)]
pub(crate) struct Queue {
    pub(super) ready_jobs: ReadyJobs,
    /// Jobs that were dequeued and are being claimed. A read of the store that began before must
    /// not add them again.
    pub(super) being_claimed: HashSet<ReadyKey>,
    /// Whether each ready job is known, or its lane is marked as one with more rows.
    pub(super) completeness: Completeness,
    pub(super) paused: bool,
    pub(super) waiting: VecDeque<Arc<Waiter>>,
    /// Time of the latest request for jobs of this queue.
    pub(super) last_requested_at: Option<Timestamp>,
    /// Time at which the latest background refill began, and whether one is in progress.
    pub(super) last_background_refill: Option<Timestamp>,
    pub(super) is_being_read: bool,
    /// Changes during the reads in progress.
    pub(super) changes: ChangeLog,
    /// The queue must be read again although no change is announced: the store failed during a
    /// claim, or the queue was resumed. The read wakes the waiting workers.
    pub(super) must_refill: bool,
    /// Number of rows of one partition that the last read skipped because of the quarantine.
    pub(super) skipped_rows: usize,
}

#[derive(Debug, Default)]
pub(super) struct Waiter {
    pub(super) notify: Notify,
    /// Jobs that this worker does not get.
    pub(super) except: ExcludedJobs,
    /// Handlers that the worker can run. `None` if it runs all.
    pub(super) handlers: Option<Vec<String>>,
    /// Whether the worker was woken, was reserved for a job, or has left.
    pub(super) is_done: AtomicBool,
    /// The claim that the worker would make, if it accepts jobs as they become ready.
    pub(super) claim: Option<WaitingClaim>,
    /// Whether the worker accepts offered jobs now.
    pub(super) accepts_offers: AtomicBool,
    /// Whether the worker was reserved for a job.
    pub(super) is_reserved: AtomicBool,
    pub(super) delivery: Mutex<Delivery>,
}

impl Waiter {
    /// Whether there are more runnable jobs than the worker excludes.
    fn has_more(&self, ready_jobs: &ReadyJobs) -> bool {
        self.handlers.is_none() && ready_jobs.runnable() > self.except.count()
    }

    pub(super) fn can_run(&self, handler: &str) -> bool {
        self.handlers
            .as_ref()
            .is_none_or(|known| known.iter().any(|known| known == handler))
    }

    fn may_run(&self, ready_key: &ReadyKey, handler: &str) -> bool {
        self.except.allows(ready_key) && self.can_run(handler)
    }

    /// Wakes the worker. Returns whether it was still waiting.
    fn wake(&self) -> bool {
        let waits = !self.is_done.swap(true, Ordering::AcqRel);
        if waits {
            self.notify.notify_one();
        }
        waits
    }
}

impl Queue {
    pub(super) fn new(key_memory: KeyMemory, weights: Arc<Weights>) -> Self {
        Self {
            ready_jobs: ReadyJobs::new(key_memory, weights),
            being_claimed: HashSet::new(),
            completeness: Completeness::default(),
            paused: false,
            waiting: VecDeque::new(),
            last_requested_at: None,
            last_background_refill: None,
            is_being_read: false,
            changes: ChangeLog::default(),
            must_refill: false,
            skipped_rows: 0,
        }
    }

    /// Whether a job of this priority may be leased without entering the queue. It may not if the
    /// queue is paused or has a more urgent job.
    pub(super) fn may_lease_directly(&self, priority: u8) -> bool {
        !self.paused
            && self
                .ready_jobs
                .first_unlimited()
                .is_none_or(|ready_key| ready_key.priority() <= priority)
    }

    /// Adds a job that became ready.
    pub(super) fn insert(
        &mut self,
        key: &LaneKey,
        ready_key: ReadyKey,
        local_partitions: &LocalPartitions,
        now: Timestamp,
    ) {
        self.changes.record(QueueChange::Job(ready_key));
        self.add(key, ready_key, local_partitions, now);
    }

    /// Skips a remote job that no worker waits for here. The lane is marked as incomplete, because
    /// only a read of the store shows whether the job is still ready. Without this, single jobs cost
    /// 1.3 times the refused writes.
    pub(super) fn skip_remote(
        &mut self,
        key: &LaneKey,
        ready_key: ReadyKey,
        local_partitions: &LocalPartitions,
    ) {
        self.changes.record(QueueChange::Job(ready_key));
        self.mark_lane_incomplete(key, ready_key.workflow().partition(), local_partitions);
    }

    fn add(
        &mut self,
        key: &LaneKey,
        ready_key: ReadyKey,
        local_partitions: &LocalPartitions,
        now: Timestamp,
    ) {
        if !self
            .ready_jobs
            .insert(key, ready_key, local_partitions, now)
        {
            // Either another job of the lane was forgotten, or there was no memory for the key. A
            // later read finds the job.
            self.mark_lane(key, |_| {});
        }
    }

    /// Sorts the known jobs again into local and remote ones after partitions were reassigned.
    pub(super) fn reclassify(&mut self, local_partitions: &LocalPartitions) {
        self.ready_jobs
            .change_all(|_, lane| lane.known_jobs.reclassify(local_partitions));
        self.mark_incomplete();
    }

    /// Forgets a job that is not ready any more. Most of these were just dequeued, so no lane has
    /// them.
    pub(super) fn remove_row(&mut self, row: &ReadyRow<'_>) {
        if self.being_claimed.remove(&row.key) {
            self.changes.record(QueueChange::Job(row.key))
        } else {
            self.remove(&self.ready_jobs.lane_key(row), &row.key)
        }
    }

    /// Forgets a job that is not ready any more.
    pub(super) fn remove(&mut self, key: &LaneKey, ready_key: &ReadyKey) {
        self.changes.record(QueueChange::Job(*ready_key));
        self.ready_jobs.remove(key, ready_key);
        self.being_claimed.remove(ready_key);
    }

    /// Marks all lanes: the store may have a job that is not known here.
    pub(super) fn mark_incomplete(&mut self) {
        self.changes.record(QueueChange::QueueIncomplete);
        self.completeness = Completeness::default();
    }

    /// Forgets all known jobs: they may be gone from the store.
    pub(super) fn forget_all(&mut self) {
        self.ready_jobs.forget_all();
        self.mark_incomplete();
    }

    /// Whether a worker requested jobs lately.
    pub(super) fn is_served(&self, now: Timestamp) -> bool {
        self.last_requested_at
            .is_some_and(|at| now.since(at) <= SERVED_TTL)
    }

    /// Marks a lane, or the queue if there is no memory for the lane.
    fn mark_lane(&mut self, key: &LaneKey, mark: impl FnOnce(&mut Lane)) {
        self.changes
            .record(QueueChange::LaneIncomplete(key.clone()));
        if self.ready_jobs.change(key, mark).is_none() {
            self.mark_incomplete();
        }
    }

    /// Marks a lane: the store may have a job in a partition that is not known here.
    pub(super) fn mark_lane_incomplete(
        &mut self,
        key: &LaneKey,
        partition: Partition,
        local_partitions: &LocalPartitions,
    ) {
        self.mark_lane(key, |lane| {
            lane.mark_incomplete(partition, local_partitions)
        });
    }

    /// Forgets the local jobs of a lane, or the remote ones, after a claim found that one in this
    /// partition was gone or may be gone: the others that were read with it probably are, too.
    pub(super) fn forget_lane(
        &mut self,
        key: &LaneKey,
        partition: Partition,
        local_partitions: &LocalPartitions,
    ) {
        self.mark_lane(key, |lane| lane.forget(partition, local_partitions));
    }

    /// Marks a lane: the store may have a job in any partition that is not known here.
    pub(super) fn mark_lane_incomplete_everywhere(&mut self, key: &LaneKey) {
        self.mark_lane(key, |lane| lane.more_rows = MoreRows::ALL);
    }

    /// Moves a job to those that are being claimed.
    pub(super) fn start_claim(&mut self, key: &LaneKey, ready_key: ReadyKey) {
        self.changes.record(QueueChange::Job(ready_key));
        self.ready_jobs.remove(key, &ready_key);
        self.ready_jobs
            .advance_pass(&key.limits, PassChange::Dequeued);
        self.being_claimed.insert(ready_key);
    }

    /// Makes the known jobs those that a read found, where it covered their lanes and partitions.
    /// Jobs that came or went since the read began are newer than its answer.
    pub(super) fn reconcile(
        &mut self,
        began: u64,
        found: &RefillRows,
        (quarantine, local_partitions): (&mut Quarantine, &LocalPartitions),
        now: Timestamp,
    ) -> RefillResult {
        let newer = self.changes.since(began);
        let by_lane = self.rows_by_lane(found);
        self.ready_jobs.mark_incomplete(&found.skipped);
        let mut refilled = RefillResult::default();
        self.skipped_rows = 0;
        let reads_remote = found.has_read(|at| !local_partitions.contains(at));
        let mut skipped = vec![0; found.partitions.len()];
        for (key, rows) in by_lane {
            let in_lane = found.lane_results(&key, &rows);
            let changed = self.ready_jobs.change(&key, |lane| {
                lane.retain_found(&in_lane, &newer.jobs);
                if !newer.incomplete_lanes.contains(&key) {
                    lane.record_more(&in_lane, local_partitions);
                }
                if reads_remote {
                    lane.known_jobs.record_read(now);
                }
            });
            if changed.is_none() {
                self.mark_incomplete();
                continue;
            }
            for (partition, ready_key, row) in rows {
                if quarantine.contains(ready_key.workflow(), now) {
                    skipped[partition] += 1;
                } else if newer.jobs.contains(&ready_key)
                    || self.being_claimed.contains(&ready_key)
                    || self.ready_jobs.contains(&key, &ready_key)
                {
                    // The job is known already, is being claimed, or changed after the read began.
                } else if quarantine.remove_orphan(&ready_key) {
                    refilled.stale_rows.push(row.clone());
                } else {
                    refilled.new_jobs.push(ready_key);
                    self.add(&key, ready_key, local_partitions, now);
                }
            }
        }
        self.skipped_rows = skipped.into_iter().max().unwrap_or(0);
        // A lane without memory for its key has marked the queue as incomplete. A job that was
        // forgotten in favour of others of its lane has marked the lane alone.
        if !self.changes.is_incomplete_since(began) {
            self.record_completeness(found, local_partitions, now);
            self.must_refill &= !found.is_of_all_partitions();
        }
        self.changes.end(began);
        refilled
    }

    /// Returns the rows that were found, by lane: index of the partition, key, row. A known lane
    /// that the read covered without finding a row has none.
    fn rows_by_lane<'f>(
        &self,
        found: &'f RefillRows,
    ) -> HashMap<LaneKey, Vec<(usize, ReadyKey, &'f Row)>> {
        let mut by_lane: HashMap<LaneKey, Vec<_>> = HashMap::new();
        for (at, read) in found.partitions.iter().enumerate() {
            let rows = read.iter().flat_map(|read| &read.rows);
            for (row, parts) in rows.filter_map(|row| Some((row, ReadyRow::read(row)?))) {
                // A row of another partition was not written by a server. It leads to no job.
                if usize::from(parts.key.workflow().partition().0) != at {
                    continue;
                }
                let key = self.ready_jobs.lane_key(&parts);
                if !found.skipped.contains(&key) {
                    by_lane.entry(key).or_default().push((at, parts.key, row));
                }
            }
        }
        let mut known = self.ready_jobs.keys();
        known.retain(|key| !found.skipped.contains(key));
        for key in known {
            by_lane.entry(key).or_default();
        }
        by_lane
    }

    /// Records whether the store may have other jobs than those that a read found.
    fn record_completeness(
        &mut self,
        found: &RefillRows,
        local_partitions: &LocalPartitions,
        now: Timestamp,
    ) {
        let all = |local: bool| {
            let mut partitions = (0_u16..).map(Partition).zip(&found.partitions);
            partitions.all(|(at, read)| {
                local_partitions.contains(at) != local
                    || read.as_ref().is_some_and(PartitionRows::has_all_lanes)
            })
        };
        if all(true) {
            self.completeness.local = Some(now);
        }
        if all(false) {
            self.completeness.remote = Some(now);
        }
    }

    /// Wakes a worker that may run this job.
    pub(super) fn wake_for(&mut self, key: &LaneKey, ready_key: &ReadyKey) {
        if self.ready_jobs.is_runnable(&key.limits) {
            self.wake(|_, waiter| waiter.may_run(ready_key, &key.handler));
        }
    }

    /// Wakes any worker, so that it reads rows that are not known here.
    pub(super) fn wake_any(&mut self) {
        self.wake(|_, _| true);
    }

    /// Wakes a worker that may run one of the jobs. Returns whether there was one.
    pub(super) fn wake_one(&mut self) -> bool {
        self.wake(may_run_any)
    }

    /// Wakes at most `limit` workers after a key was unblocked, but no more than there are runnable
    /// jobs.
    pub(super) fn wake_some(&mut self, limit: usize) {
        for _ in 0..limit.min(self.ready_jobs.runnable()) {
            if !self.wake(may_run_any) {
                break;
            }
        }
        if self.ready_jobs.has_lanes_to_refill() {
            self.wake_any();
        }
    }

    /// Wakes the first worker for which `may` holds. Returns whether there was one.
    fn wake(&mut self, may: impl Fn(&ReadyJobs, &Waiter) -> bool) -> bool {
        let mut at = 0;
        while let Some(waiter) = self.waiting.get(at) {
            if !may(&self.ready_jobs, waiter) {
                at += 1;
                continue;
            }
            let waiter = self.waiting.remove(at).expect("it was just looked at");
            if waiter.wake() {
                return true;
            }
        }
        false
    }

    /// Wakes as many workers as there are jobs. A worker with excluded jobs is woken only for new
    /// jobs or for more jobs than it excludes: it saw the others when it came.
    pub(super) fn wake_all(&mut self, new: &[ReadyKey]) {
        let ready_jobs = &self.ready_jobs;
        let mut left = self.ready_jobs.runnable();
        if self.paused || left == 0 {
            return;
        }
        self.waiting.retain(|waiter| {
            let any = || match waiter.handlers {
                None => new.iter().any(|ready_key| waiter.except.allows(ready_key)),
                Some(_) => may_run_any(ready_jobs, waiter),
            };
            let may = || waiter.has_more(ready_jobs) || any();
            let woken = left > 0 && may();
            left -= usize::from(woken && waiter.wake());
            !woken
        });
    }

    /// Whether the queue can be forgotten. If its name is used again, the store is read again.
    pub(super) fn is_idle(&mut self) -> bool {
        let used = self.paused
            || !self.ready_jobs.is_empty()
            || !self.being_claimed.is_empty()
            || self.changes.has_readers();
        !used && !self.has_waiters()
    }

    /// Whether a worker waits. Removes workers that have left.
    pub(super) fn has_waiters(&mut self) -> bool {
        self.waiting
            .retain(|waiter| !waiter.is_done.load(Ordering::Acquire));
        !self.waiting.is_empty()
    }
}

/// Whether there is a job that this worker may run.
fn may_run_any(ready_jobs: &ReadyJobs, waiter: &Waiter) -> bool {
    let may_run_one = |(handler, lane): (&Arc<str>, &Lane)| {
        waiter.can_run(handler)
            && lane
                .known_jobs
                .iter()
                .any(|ready_key| waiter.except.allows(ready_key))
    };
    match &waiter.handlers {
        // The number of jobs for each handler is enough, unless it does not exceed the number of
        // excluded jobs.
        Some(handlers) => {
            let max_known = handlers
                .iter()
                .map(|handler| ready_jobs.runnable_for(handler))
                .max()
                .unwrap_or(0);
            max_known > waiter.except.count()
                || (max_known > 0 && ready_jobs.runnable_lanes().any(may_run_one))
        }
        None => waiter.has_more(ready_jobs) || ready_jobs.runnable_lanes().any(may_run_one),
    }
}
