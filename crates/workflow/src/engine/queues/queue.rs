//! The ready jobs of one queue, and the workers that wait for them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use hashbrown::{HashMap, HashSet};
use tokio::sync::Notify;

use super::demand::RecentClaims;
use super::excluded_jobs::ExcludedJobs;
use super::lane::{Completeness, Lane, MoreRows};
use super::quarantine::Quarantine;
use super::ready_jobs::{LaneKey, Lanes, Room, Served};
use super::refill::{ChangeLog, PartitionRows, RefillRows, RefillStart, Refilled};
use super::waiting_claim::{Delivery, WaitingClaim};
use super::weights::Weights;
use crate::codec::rows::{ReadyKey, ReadyRow, Row};
use crate::engine::membership::partitions::LocalPartitions;
use crate::id::Partition;
use crate::time::Timestamp;

#[derive(Debug)]
pub(super) struct Queue {
    pub(super) lanes: Lanes,
    /// Jobs that were dequeued and are being claimed. A read of the store that began before must
    /// not add them again.
    pub(super) claimed: HashSet<ReadyKey>,
    /// Whether each ready job is known, or its lane is marked as one with more rows.
    pub(super) complete: Completeness,
    pub(super) paused: bool,
    pub(super) waiting: VecDeque<Arc<Waiter>>,
    /// Time of the latest request for jobs of this queue.
    pub(super) asked: Option<Timestamp>,
    /// Time at which the latest background refill began, and whether one is in progress.
    pub(super) looked: Option<Timestamp>,
    pub(super) is_read: bool,
    /// Jobs that came or went during the reads in progress.
    pub(super) changes: ChangeLog,
    /// Number of times that a job of the store may have become unknown here. Each mark is for one
    /// lane, which keeps the number, or for all lanes.
    pub(super) doubts: u64,
    /// Number of the latest mark that was not for one lane.
    pub(super) doubted: u64,
    /// The queue must be read again although no change is announced: the store failed during a
    /// claim, or the queue was resumed. The read wakes the waiting workers.
    pub(super) failed: bool,
    /// Number of rows of one partition that the last read skipped because of the quarantine.
    pub(super) passed: usize,
    /// Outcomes of claims of remote jobs.
    pub(super) claims: RecentClaims,
}

#[derive(Debug, Default)]
pub(super) struct Waiter {
    pub(super) notify: Notify,
    /// Jobs that this worker does not get.
    pub(super) except: ExcludedJobs,
    /// Handlers that the worker can run. `None` if it runs all.
    pub(super) handlers: Option<Vec<String>>,
    /// Whether the worker was woken, was reserved for a job, or has left.
    pub(super) done: AtomicBool,
    /// The claim that the worker would make, if it accepts jobs as they become ready.
    pub(super) lessee: Option<WaitingClaim>,
    /// Whether the worker accepts offered jobs now.
    pub(super) is_open: AtomicBool,
    /// Whether the worker was reserved for a job.
    pub(super) is_chosen: AtomicBool,
    pub(super) handed: Mutex<Delivery>,
}

impl Waiter {
    /// Whether there are more runnable jobs than the worker excludes.
    fn has_more(&self, lanes: &Lanes) -> bool {
        self.handlers.is_none() && lanes.open() > self.except.number()
    }

    pub(super) fn can_run(&self, handler: &str) -> bool {
        self.handlers
            .as_ref()
            .is_none_or(|known| known.iter().any(|known| known == handler))
    }

    fn may_have(&self, head: &ReadyKey, handler: &str) -> bool {
        self.except.allows(head) && self.can_run(handler)
    }

    /// Wakes the worker. Returns whether it was still waiting.
    fn wake(&self) -> bool {
        let waits = !self.done.swap(true, Ordering::AcqRel);
        if waits {
            self.notify.notify_one();
        }
        waits
    }
}

impl Queue {
    pub(super) fn new(room: Room, weights: Arc<Weights>) -> Self {
        Self {
            lanes: Lanes::new(room, weights),
            claimed: HashSet::new(),
            complete: Completeness::default(),
            paused: false,
            waiting: VecDeque::new(),
            asked: None,
            looked: None,
            is_read: false,
            changes: ChangeLog::default(),
            doubts: 0,
            doubted: 0,
            failed: false,
            passed: 0,
            claims: RecentClaims::default(),
        }
    }

    /// Whether a job of this priority may be leased without entering the queue. It may not if the
    /// queue is paused or has a more urgent job.
    pub(super) fn is_free_for(&self, priority: u8) -> bool {
        !self.paused
            && self
                .lanes
                .first_free()
                .is_none_or(|head| head.priority() <= priority)
    }

    /// Adds a job that became ready.
    pub(super) fn insert(
        &mut self,
        key: &LaneKey,
        head: ReadyKey,
        mine: &LocalPartitions,
        now: Timestamp,
    ) {
        self.changes.note(head);
        self.add(key, head, mine, now);
    }

    /// Skips a remote job that no worker waits for here. The lane is marked as incomplete, because
    /// only a read of the store shows whether the job is still ready.
    pub(super) fn leave(&mut self, key: &LaneKey, head: ReadyKey, mine: &LocalPartitions) {
        self.changes.note(head);
        self.doubt_lane(key, head.workflow().partition(), mine);
    }

    fn add(&mut self, key: &LaneKey, head: ReadyKey, mine: &LocalPartitions, now: Timestamp) {
        if !self.lanes.insert(key, head, mine, now) {
            // Either another job of the lane was forgotten, or there was no memory for the key. A
            // later read finds the job.
            self.note_doubt(key, |_| {});
        }
    }

    /// Sorts the known jobs again into local and remote ones after partitions were reassigned.
    pub(super) fn sort_out(&mut self, mine: &LocalPartitions) {
        self.lanes.change_all(|_, lane| lane.heads.sort_out(mine));
        self.mark_incomplete();
    }

    /// Forgets a job that is not ready any more. Most of these were just dequeued, so no lane has
    /// them.
    pub(super) fn remove_row(&mut self, row: &ReadyRow<'_>) {
        if self.claimed.remove(&row.place) {
            self.changes.note(row.place)
        } else {
            self.remove(&self.lanes.key_of(row), &row.place)
        }
    }

    /// Forgets a job that is not ready any more.
    pub(super) fn remove(&mut self, key: &LaneKey, head: &ReadyKey) {
        self.changes.note(*head);
        self.lanes.remove(key, head);
        self.claimed.remove(head);
    }

    /// Marks all lanes: the store may have a job that is not known here.
    pub(super) fn mark_incomplete(&mut self) {
        self.doubts += 1;
        self.doubted = self.doubts;
        self.complete = Completeness::default();
    }

    /// Marks the queue as due for a read: the store may have jobs that were not announced.
    pub(super) fn mark_old(&mut self) {
        self.doubts += 1;
        self.doubted = self.doubts;
        self.complete.is_old = true;
    }

    /// Numbers a mark and adds it to its lane, or to the queue if there is no memory for the lane.
    fn note_doubt(&mut self, key: &LaneKey, doubt: impl FnOnce(&mut Lane)) {
        self.doubts += 1;
        let number = self.doubts;
        let noted = self.lanes.change(key, |lane| {
            lane.doubted = number;
            doubt(lane);
        });
        if noted.is_none() {
            self.mark_incomplete();
        }
    }

    /// Marks a lane: the store may have a job in a partition that is not known here.
    pub(super) fn doubt_lane(
        &mut self,
        key: &LaneKey,
        partition: Partition,
        mine: &LocalPartitions,
    ) {
        self.note_doubt(key, |lane| lane.mark_incomplete(partition, mine));
    }

    /// Marks a lane as stale after a claim found that a job was gone or may be gone. Other jobs of
    /// the lane may be gone, too.
    pub(super) fn mark_stale(
        &mut self,
        key: &LaneKey,
        partition: Partition,
        mine: &LocalPartitions,
    ) {
        self.doubt_lane(key, partition, mine);
        self.lanes.change(key, |lane| lane.stale = true);
    }

    /// Marks a lane: the store may have a job in any partition that is not known here.
    pub(super) fn doubt_everywhere(&mut self, key: &LaneKey) {
        self.note_doubt(key, |lane| lane.more = MoreRows::ALL);
    }

    /// Moves a job to those that are being claimed.
    pub(super) fn take(&mut self, key: &LaneKey, head: ReadyKey) {
        self.changes.note(head);
        self.lanes.remove(key, &head);
        self.lanes.serve(&key.limits, Served::Yes);
        self.claimed.insert(head);
    }

    /// Makes the known jobs those that a read found, where it covered their lanes and partitions.
    /// Jobs that came or went since the read began are newer than its answer.
    pub(super) fn reconcile(
        &mut self,
        began: RefillStart,
        found: &RefillRows,
        (aside, mine): (&mut Quarantine, &LocalPartitions),
        now: Timestamp,
    ) -> Refilled {
        let newer = self.changes.end(began.change);
        let mut by_lane = self.sorted(found);
        if found.is_of_all_lanes() {
            for key in self
                .lanes
                .keys()
                .into_iter()
                .filter(|key| !found.skipped.contains(key))
            {
                by_lane.entry(key).or_default();
            }
        }
        self.lanes.doubt(&found.skipped);
        let mut refilled = Refilled::default();
        self.passed = 0;
        self.failed = false;
        let mut passed = vec![0; found.partitions.len()];
        for (key, rows) in by_lane {
            let in_lane = found.of_lane(&key, &rows);
            let certain = self.lanes.change(&key, |lane| {
                lane.drop_others(&in_lane, &newer);
                if lane.doubted <= began.doubts {
                    lane.note_more(&in_lane, mine);
                }
                lane.heads.note_read(now);
            });
            if certain.is_none() {
                self.mark_incomplete();
                continue;
            }
            for (partition, head, row) in rows {
                if aside.has(head.workflow(), now) {
                    passed[partition] += 1;
                } else if newer.contains(&head)
                    || self.claimed.contains(&head)
                    || self.lanes.has(&key, &head)
                {
                    // The job is known already, is being claimed, or changed after the read began.
                } else if aside.take_orphan(&head) {
                    refilled.stale.push(row.clone());
                } else {
                    refilled.new.push(head);
                    self.add(&key, head, mine, now);
                }
            }
        }
        self.passed = passed.into_iter().max().unwrap_or(0);
        // A lane without memory for its key has marked the queue as incomplete. A job that was
        // forgotten in favour of others of its lane has marked the lane alone.
        if self.doubted <= began.doubts {
            self.note_complete(found, mine, now);
        }
        refilled
    }

    /// Returns the rows that were found, by lane: index of the partition, key, row.
    fn sorted<'f>(
        &self,
        found: &'f RefillRows,
    ) -> HashMap<LaneKey, Vec<(usize, ReadyKey, &'f Row)>> {
        let mut by_lane: HashMap<LaneKey, Vec<_>> = HashMap::new();
        for (at, read) in found.partitions.iter().enumerate() {
            let rows = read.iter().flat_map(|read| &read.rows);
            for (row, parts) in rows.filter_map(|row| Some((row, ReadyRow::read(row)?))) {
                let key = self.lanes.key_of(&parts);
                if !found.skipped.contains(&key) {
                    by_lane.entry(key).or_default().push((at, parts.place, row));
                }
            }
        }
        by_lane
    }

    /// Records whether the store may have other jobs than those that a read found.
    fn note_complete(&mut self, found: &RefillRows, mine: &LocalPartitions, now: Timestamp) {
        let all = |here: bool| {
            let mut partitions = (0_u16..).map(Partition).zip(&found.partitions);
            partitions.all(|(at, read)| {
                mine.contains(at) != here || read.as_ref().is_some_and(PartitionRows::has_all_lanes)
            })
        };
        let here = all(true);
        let away = all(false);
        if here {
            self.complete.here = Some(now);
        }
        if away {
            self.complete.away = Some(now);
        }
        self.complete.is_old &= !here;
    }

    /// Wakes a worker that may run this job.
    pub(super) fn wake_for(&mut self, key: &LaneKey, head: &ReadyKey) {
        if self.lanes.is_open(&key.limits) {
            self.wake(|_, waiter| waiter.may_have(head, &key.handler));
        }
    }

    /// Wakes any worker, so that it reads rows that are not known here.
    pub(super) fn wake_any(&mut self) {
        self.wake(|_, _| true);
    }

    /// Wakes a worker that may run one of the jobs. Returns whether there was one.
    pub(super) fn wake_one(&mut self) -> bool {
        self.wake(may_have_one)
    }

    /// Wakes at most `limit` workers after a key was unblocked, but no more than there are runnable
    /// jobs.
    pub(super) fn wake_some(&mut self, most: usize) {
        for _ in 0..most.min(self.lanes.open()) {
            if !self.wake(may_have_one) {
                break;
            }
        }
        if self.lanes.has_thirsty() {
            self.wake_any();
        }
    }

    /// Wakes the first worker for which `may` holds. Returns whether there was one.
    fn wake(&mut self, may: impl Fn(&Lanes, &Waiter) -> bool) -> bool {
        let mut at = 0;
        while let Some(waiter) = self.waiting.get(at) {
            if !may(&self.lanes, waiter) {
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
        let lanes = &self.lanes;
        let mut left = self.lanes.open();
        if self.paused || left == 0 {
            return;
        }
        self.waiting.retain(|waiter| {
            let any = || match waiter.handlers {
                None => new.iter().any(|head| waiter.except.allows(head)),
                Some(_) => may_have_one(lanes, waiter),
            };
            let may = || waiter.has_more(lanes) || any();
            let woken = left > 0 && may();
            left -= usize::from(woken && waiter.wake());
            !woken
        });
    }

    /// Whether the queue can be forgotten. If its name is used again, the store is read again.
    pub(super) fn is_idle(&mut self) -> bool {
        let used = self.paused
            || !self.lanes.is_empty()
            || !self.claimed.is_empty()
            || self.changes.are_awaited();
        !used && !self.is_wanted()
    }

    /// Whether a worker waits. Removes workers that have left.
    pub(super) fn is_wanted(&mut self) -> bool {
        self.waiting
            .retain(|waiter| !waiter.done.load(Ordering::Acquire));
        !self.waiting.is_empty()
    }
}

/// Whether there is a job that this worker may run.
fn may_have_one(lanes: &Lanes, waiter: &Waiter) -> bool {
    let has_one = |(handler, lane): (&Arc<str>, &Lane)| {
        waiter.can_run(handler) && lane.heads.iter().any(|head| waiter.except.allows(head))
    };
    match &waiter.handlers {
        // The number of jobs for each handler is enough, unless it does not exceed the number of
        // excluded jobs.
        Some(handlers) => {
            let most = handlers
                .iter()
                .map(|handler| lanes.open_of(handler))
                .max()
                .unwrap_or(0);
            most > waiter.except.number() || (most > 0 && lanes.open_lanes().any(has_one))
        }
        None => waiter.has_more(lanes) || lanes.open_lanes().any(has_one),
    }
}
