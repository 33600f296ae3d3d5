//! The ready jobs of one queue, and the workers that wait for them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hashbrown::HashSet;
use tokio::sync::Notify;

use super::aside::Aside;
use super::except::Except;
use super::heads::Heads;
use super::reading::{Began, Changes, Found, Refilled};
use super::rivals::Claims;
use crate::engine::home::mine::Mine;
use crate::id::Partition;
use crate::record::rows::{ReadyPlace, ReadyRow, Row};
use crate::time::Timestamp;

/// How many ready jobs of one queue are kept in memory, about 60 bytes each. The others are read from the store when these are used up.
const KEPT: usize = 16_384;

/// How long it is believed that the store has no others, when what other servers do is heard: some of it may have been missed.
const BELIEVED: Duration = Duration::from_secs(11);

/// When it was found that the store has no others than those known here.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Complete {
    /// Of those that are at home here.
    here: Option<Timestamp>,
    away: Option<Timestamp>,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    pub(super) heads: Heads,
    /// Taken out to be claimed; a read of the store that began before must not bring them back.
    pub(super) claimed: HashSet<ReadyPlace>,
    pub(super) complete: Complete,
    pub(super) paused: bool,
    pub(super) waiting: VecDeque<Arc<Waiter>>,
    /// When a worker last asked for its jobs.
    pub(super) asked: Option<Timestamp>,
    /// What came and went during the reads that are under way.
    pub(super) changes: Changes,
    /// Increases whenever the store may have a job that was dropped here.
    pub(super) doubts: u64,
    /// The store failed during a claim: nobody was told of the job, so those who wait must be woken later.
    pub(super) failed: bool,
    /// How many rows of one partition the last read passed over.
    pub(super) passed: usize,
    /// How claims of jobs of other homes ended.
    pub(super) claims: Claims,
}

#[derive(Debug, Default)]
pub(super) struct Waiter {
    pub(super) notify: Notify,
    /// Jobs that this worker does not get.
    pub(super) except: Except,
    /// Whether it was woken or has left.
    pub(super) done: AtomicBool,
}

impl Waiter {
    /// Whether there are more jobs than it does not want.
    fn has_more(&self, heads: &Heads) -> bool {
        heads.len() > self.except.number()
    }

    /// Wakes it. Returns whether it was still waiting.
    fn wake(&self) -> bool {
        let waits = !self.done.swap(true, Ordering::AcqRel);
        if waits {
            self.notify.notify_one();
        }
        waits
    }
}

/// The queue of a row that any worker may take, and the job's place in it.
pub(super) fn read_row(row: &[u8]) -> Option<(&str, ReadyPlace)> {
    let row = ReadyRow::read(row)?;
    // A job with limits is not handed out before its limits were asked.
    row.limit_key.is_empty().then_some((row.queue, row.place))
}

impl Complete {
    pub(super) fn here(&self, now: Timestamp) -> bool {
        self.here.is_some_and(|found| now.since(found) <= BELIEVED)
    }

    pub(super) fn everywhere(&self, now: Timestamp) -> bool {
        self.here(now) && self.away.is_some_and(|found| now.since(found) <= BELIEVED)
    }
}

impl Queue {
    pub(super) fn insert(&mut self, head: ReadyPlace, mine: &Mine, now: Timestamp) {
        self.changes.note(head);
        self.add(head, mine, now);
    }

    /// A job for which nobody waits here is left to its home. Until it is read, nobody knows here whether it is still there.
    pub(super) fn leave(&mut self, head: ReadyPlace) {
        self.changes.note(head);
        self.doubts += 1;
        self.complete.away = None;
    }

    fn add(&mut self, head: ReadyPlace, mine: &Mine, now: Timestamp) {
        self.heads.insert(head, mine, now);
        if self.heads.len() > KEPT {
            self.heads.pop_last();
            self.doubt();
        }
    }

    /// Sorts what is known again after other partitions have come home.
    pub(super) fn sort_out(&mut self, mine: &Mine) {
        self.heads.sort_out(mine);
        self.doubt();
    }

    /// Forgets a job that is not ready any more.
    pub(super) fn remove(&mut self, head: &ReadyPlace) {
        self.changes.note(*head);
        self.heads.remove(head);
        self.claimed.remove(head);
    }

    /// The store may have a job that is not known here.
    pub(super) fn doubt(&mut self) {
        self.doubts += 1;
        self.complete = Complete::default();
    }

    /// Moves a job to those that are being claimed.
    pub(super) fn take(&mut self, head: ReadyPlace) {
        self.changes.note(head);
        self.heads.remove(&head);
        self.claimed.insert(head);
    }

    /// Makes the jobs known here those that a read found, wherever it looked. What came or went here since it began is newer.
    pub(super) fn reconcile(
        &mut self,
        began: Began,
        found: Found<'_>,
        (aside, mine): (&mut Aside, &Mine),
        now: Timestamp,
    ) -> Refilled {
        let newer = self.changes.end(began.change);
        let place = |row: &Row| Some((read_row(row)?.1, row.clone()));
        let rows = |rows: &Vec<Row>| -> Vec<(ReadyPlace, Row)> { rows.iter().filter_map(place).collect() };
        let partitions: Vec<Option<Vec<(ReadyPlace, Row)>>> =
            found.partitions.iter().map(|partition| partition.as_ref().map(rows)).collect();
        let stored: HashSet<ReadyPlace> = partitions.iter().flatten().flatten().map(|(head, _)| *head).collect();
        self.heads.retain(|head| {
            let at = head.workflow().partition();
            let Some(Some(read)) = partitions.get(usize::from(at.0)) else { return true };
            let beyond = || !found.is_all_of(at) && read.last().is_some_and(|(last, _)| head > last);
            stored.contains(head) || newer.contains(head) || beyond()
        });
        self.note_complete(began, found, mine, now);
        let mut refilled = Refilled::default();
        (self.passed, self.failed) = (0, false);
        for rows in partitions.into_iter().flatten() {
            let mut passed = 0;
            for (head, row) in rows {
                if aside.has(head.workflow(), now) {
                    passed += 1;
                } else if newer.contains(&head) || self.claimed.contains(&head) || self.heads.contains(&head) {
                    // Known, or known to be over.
                } else if aside.take_orphan(&head) {
                    refilled.stale.push(row);
                } else {
                    refilled.new.push(head);
                    self.add(head, mine, now);
                }
            }
            self.passed = self.passed.max(passed);
        }
        self.heads.note_read(now);
        refilled
    }

    /// Notes whether there may be others than those that a read found.
    fn note_complete(&mut self, began: Began, found: Found<'_>, mine: &Mine, now: Timestamp) {
        if began.doubts != self.doubts {
            return;
        }
        let all = |here: bool| {
            let mut partitions = (0..found.partitions.len()).map(|at| Partition(at as u16));
            partitions.all(|at| mine.has(at) != here || found.is_all_of(at))
        };
        if all(true) {
            self.complete.here = Some(now);
        }
        if all(false) {
            self.complete.away = Some(now);
        }
    }

    /// Wakes a worker that may have this job.
    pub(super) fn wake_for(&mut self, head: &ReadyPlace) {
        self.wake(|_, waiter| waiter.except.allows(head));
    }

    /// Wakes a worker that may have one of the jobs.
    pub(super) fn wake_one(&mut self) {
        self.wake(|heads, waiter| waiter.has_more(heads) || heads.iter().any(|head| waiter.except.allows(head)));
    }

    fn wake(&mut self, may: impl Fn(&Heads, &Waiter) -> bool) {
        let mut at = 0;
        while let Some(waiter) = self.waiting.get(at) {
            if !may(&self.heads, waiter) {
                at += 1;
                continue;
            }
            let waiter = self.waiting.remove(at).expect("it was just looked at");
            if waiter.wake() {
                return;
            }
        }
    }

    /// Wakes as many workers as there are jobs. Those that do not want all of them are asked for the new ones only: whoever came
    /// looked at the others.
    pub(super) fn wake_all(&mut self, new: &[ReadyPlace]) {
        if self.paused || self.heads.is_empty() {
            return;
        }
        let (heads, mut left) = (&self.heads, self.heads.len());
        self.waiting.retain(|waiter| {
            let may = || waiter.has_more(heads) || new.iter().any(|head| waiter.except.allows(head));
            let woken = left > 0 && may();
            left -= usize::from(woken && waiter.wake());
            !woken
        });
    }

    /// Whether it can be forgotten. If its name is used again, the store is read again.
    pub(super) fn is_idle(&mut self) -> bool {
        let used = self.paused || !self.heads.is_empty() || !self.claimed.is_empty() || self.changes.are_awaited();
        !used && !self.is_wanted()
    }

    /// Whether a worker waits; forgets those that went away.
    pub(super) fn is_wanted(&mut self) -> bool {
        self.waiting.retain(|waiter| !waiter.done.load(Ordering::Acquire));
        !self.waiting.is_empty()
    }
}
