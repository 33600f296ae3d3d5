//! The ready jobs of one handler under one key, as far as they are known.

use std::time::Duration;

use hashbrown::HashSet;

use super::known_jobs::KnownJobs;
use super::{ClaimMode, PartitionScope};
use crate::codec::rows::ReadyKey;
use crate::engine::membership::partitions::LocalPartitions;
use crate::id::Partition;
use crate::time::Timestamp;

/// How long it is believed that the store has no others, when what other servers do is heard: some of it may have been missed.
const BELIEVED: Duration = Duration::from_secs(11);
/// How long those believe it who wait for jobs: meanwhile it is read beside their claims.
const BELIEVED_WAITING: Duration = Duration::from_secs(30);

/// When it was found that the store has no others than those known here.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Completeness {
    /// Of those that are at home here.
    pub(super) here: Option<Timestamp>,
    pub(super) away: Option<Timestamp>,
    /// Whether it is time to look again, whenever that was.
    pub(super) is_old: bool,
}

impl Completeness {
    pub(super) fn here(&self, patience: ClaimMode, now: Timestamp) -> bool {
        self.is_believed(self.here, patience, now)
    }

    pub(super) fn everywhere(&self, patience: ClaimMode, now: Timestamp) -> bool {
        self.here(patience, now) && self.is_believed(self.away, patience, now)
    }

    /// Whether it is time to look again: here, or everywhere if there is nothing to do here.
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
    /// Some that are at home here.
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
    /// Whether what is known may be gone.
    pub(super) stale: bool,
    /// The number of the latest doubt about it: what a read found that began before it is not all.
    pub(super) doubted: u64,
}

/// What a read found of a lane in one partition: places, lowest first, and whether there may be others behind them.
#[derive(Debug, Clone, Default)]
pub(super) struct LaneFound {
    pub(super) places: Vec<ReadyKey>,
    pub(super) more: bool,
}

impl Lane {
    /// Whether no job is known for sure, and the store may have some.
    pub(super) fn is_thirsty(&self) -> bool {
        self.stale || (self.heads.is_empty() && self.more.any())
    }

    /// Whether nothing is known of it that would be missed.
    pub(super) fn is_idle(&self) -> bool {
        self.heads.is_empty() && !self.more.any() && !self.stale
    }

    /// The store may have others where this one is.
    pub(super) fn mark_incomplete(&mut self, partition: Partition, mine: &LocalPartitions) {
        if mine.contains(partition) {
            self.more.local = true
        } else {
            self.more.remote = true
        }
    }

    /// Forgets all jobs behind the first ones.
    pub(super) fn forget_behind(&mut self, most: usize, mine: &LocalPartitions) {
        while self.heads.len() > most {
            let Some(forgotten) = self.heads.pop_last() else {
                return;
            };
            self.mark_incomplete(forgotten.workflow().partition(), mine);
        }
    }

    /// Forgets the jobs that a read did not find where it looked. What came or went here since it began is newer.
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

    /// Notes whether there may be others than those that a read found.
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
