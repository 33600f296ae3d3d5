//! The known ready jobs of one handler under one key.

use std::time::Duration;

use hashbrown::HashSet;

use super::known_jobs::KnownJobs;
use super::{ClaimMode, PartitionScope};
use crate::codec::rows::ReadyKey;
use crate::engine::membership::partitions::LocalPartitions;
use crate::id::Partition;
use crate::time::Timestamp;

/// Time for which the known jobs count as complete while notifications are received. Notifications
/// may get lost, so it is bounded.
const BELIEVED: Duration = Duration::from_secs(11);
/// Time for which the known jobs count as complete for a worker that waits: a background refill
/// reads them sooner.
const BELIEVED_WAITING: Duration = Duration::from_secs(30);

/// Times at which the store was found to have no other jobs than those known here.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Completeness {
    /// Time for the partitions that are assigned to this server.
    pub(super) here: Option<Timestamp>,
    pub(super) away: Option<Timestamp>,
    /// Whether a read is due regardless of those times.
    pub(super) is_old: bool,
}

impl Completeness {
    pub(super) fn here(&self, patience: ClaimMode, now: Timestamp) -> bool {
        self.is_believed(self.here, patience, now)
    }

    pub(super) fn everywhere(&self, patience: ClaimMode, now: Timestamp) -> bool {
        self.here(patience, now) && self.is_believed(self.away, patience, now)
    }

    /// Whether a read is due of the local partitions, or of the remote ones. Remote ones count with
    /// [`PartitionScope::All`] or if they were read before.
    pub(super) fn is_due(&self, place: PartitionScope, now: Timestamp) -> bool {
        let away = self.away.is_some() || place == PartitionScope::All;
        !self.here(ClaimMode::Immediate, now)
            || (away && !self.is_believed(self.away, ClaimMode::Immediate, now))
    }

    fn is_believed(&self, found: Option<Timestamp>, patience: ClaimMode, now: Timestamp) -> bool {
        let long = match patience {
            ClaimMode::Immediate if self.is_old => return false,
            ClaimMode::Immediate => BELIEVED,
            ClaimMode::LongPoll => BELIEVED_WAITING,
        };
        found.is_some_and(|found| now.since(found) <= long)
    }
}

/// Whether the store may have jobs that are not known here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct MoreRows {
    /// There may be more rows in partitions that are assigned to this server.
    pub(super) local: bool,
    pub(super) remote: bool,
}

impl MoreRows {
    pub(super) const ALL: Self = Self {
        local: true,
        remote: true,
    };

    pub(super) fn any(self) -> bool {
        self.local || self.remote
    }
}

/// The ready jobs of one handler under one key.
#[derive(Debug, Default)]
pub(super) struct Lane {
    pub(super) heads: KnownJobs,
    pub(super) more: MoreRows,
    /// Whether known jobs may be gone from the store.
    pub(super) stale: bool,
    /// Number of the latest mark of this lane as incomplete. A read that began before that mark
    /// cannot clear it.
    pub(super) doubted: u64,
}

/// Rows of a lane that a read found in one partition: their keys in ascending order, and whether
/// there may be more behind them.
#[derive(Debug, Clone, Default)]
pub(super) struct LaneFound {
    pub(super) places: Vec<ReadyKey>,
    pub(super) more: bool,
}

impl Lane {
    /// Whether no job is known for certain, and the store may have some.
    pub(super) fn is_thirsty(&self) -> bool {
        self.stale || (self.heads.is_empty() && self.more.any())
    }

    /// Whether forgetting the lane loses no knowledge.
    pub(super) fn is_idle(&self) -> bool {
        self.heads.is_empty() && !self.more.any() && !self.stale
    }

    /// Marks that the store may have more rows in this kind of partition.
    pub(super) fn mark_incomplete(&mut self, partition: Partition, mine: &LocalPartitions) {
        if mine.contains(partition) {
            self.more.local = true
        } else {
            self.more.remote = true
        }
    }

    /// Forgets all jobs behind the first `limit`.
    pub(super) fn forget_behind(&mut self, most: usize, mine: &LocalPartitions) {
        while self.heads.len() > most {
            let Some(forgotten) = self.heads.pop_last() else {
                return;
            };
            self.mark_incomplete(forgotten.workflow().partition(), mine);
        }
    }

    /// Forgets the jobs that a read did not find in the rows that it covered. Jobs that came or
    /// went since the read began are newer than its answer.
    pub(super) fn drop_others(&mut self, found: &[Option<LaneFound>], newer: &HashSet<ReadyKey>) {
        let found = |partition: Partition| found.get(usize::from(partition.0))?.as_ref();
        self.heads.retain(|head| {
            let Some(LaneFound { places, more }) = found(head.workflow().partition()) else {
                return true;
            };
            let beyond = || *more && places.last().is_some_and(|last| head > last);
            places.binary_search(head).is_ok() || newer.contains(head) || beyond()
        });
    }

    /// Records whether the store may have other jobs than those that a read found.
    pub(super) fn note_more(&mut self, found: &[Option<LaneFound>], mine: &LocalPartitions) {
        let all = |here: bool| {
            let mut partitions = found
                .iter()
                .enumerate()
                .filter(|(at, _)| mine.contains(Partition(*at as u16)) == here);
            partitions.all(|(_, found)| found.as_ref().is_some_and(|found| !found.more))
        };
        let some = |here: bool| {
            let mut partitions = found
                .iter()
                .enumerate()
                .filter(|(at, _)| mine.contains(Partition(*at as u16)) == here);
            partitions.any(|(_, found)| found.as_ref().is_some_and(|found| found.more))
        };
        self.stale = false;
        self.more.local = some(true) || (self.more.local && !all(true));
        self.more.remote = some(false) || (self.more.remote && !all(false));
    }
}
