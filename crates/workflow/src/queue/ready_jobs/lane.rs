//! The known ready jobs of one handler under one key.

use std::time::Duration;

use hashbrown::HashSet;

use super::known_jobs::KnownJobs;
use crate::codec::ReadyKey;
use crate::model::{Partition, Timestamp};
use crate::queue::{LocalPartitions, PartitionScope};

/// Time for which the known jobs count as complete while notifications are received. Notifications
/// may get lost, so it is bounded.
const COMPLETE_TTL: Duration = Duration::from_secs(11);

/// Times at which the store was found to have no other jobs than those known here.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Completeness {
    /// Time for the partitions that are assigned to this server.
    pub(crate) local: Option<Timestamp>,
    pub(crate) remote: Option<Timestamp>,
}

impl Completeness {
    /// Whether the store was lately found to have no other jobs in `scope`.
    pub(crate) fn covers(&self, scope: PartitionScope, now: Timestamp) -> bool {
        let is_fresh = |found_at: Option<Timestamp>| {
            found_at.is_some_and(|found_at| now.since(found_at) <= COMPLETE_TTL)
        };
        is_fresh(self.local) && (scope == PartitionScope::Local || is_fresh(self.remote))
    }
}

/// Whether the store may have jobs that are not known here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct MoreRows {
    /// There may be more rows in partitions that are assigned to this server.
    pub(crate) local: bool,
    pub(crate) remote: bool,
}

impl MoreRows {
    pub(crate) const ALL: Self = Self {
        local: true,
        remote: true,
    };

    pub(crate) fn any(self) -> bool {
        self.local || self.remote
    }
}

/// The ready jobs of one handler under one key.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    pub(crate) known_jobs: KnownJobs,
    pub(crate) more_rows: MoreRows,
}

/// The state of a lane that the totals of its queue are computed from.
#[derive(Debug, Clone, Copy)]
pub(super) struct LaneSummary {
    /// Number of known jobs.
    pub(super) known: usize,
    /// Whether no local job or no job at all is known, and the store may have some.
    pub(super) needs_refill: bool,
}

/// Rows of a lane that a read found in one partition: their keys in ascending order, and whether
/// there may be more behind them.
#[derive(Debug, Clone, Default)]
pub(crate) struct LaneReadResult {
    pub(crate) keys: Vec<ReadyKey>,
    pub(crate) more: bool,
}

impl Lane {
    pub(super) fn summary(&self) -> LaneSummary {
        LaneSummary {
            known: self.known_jobs.len(),
            needs_refill: (self.known_jobs.local.is_empty() && self.more_rows.local)
                || (self.known_jobs.is_empty() && self.more_rows.remote),
        }
    }

    /// Whether forgetting the lane loses no knowledge.
    pub(crate) fn is_idle(&self) -> bool {
        self.known_jobs.is_empty() && !self.more_rows.any()
    }

    /// Marks that the store may have more rows in local partitions, or in remote ones if this one
    /// is remote.
    pub(crate) fn mark_incomplete(
        &mut self,
        partition: Partition,
        local_partitions: &LocalPartitions,
    ) {
        if local_partitions.contains(partition) {
            self.more_rows.local = true
        } else {
            self.more_rows.remote = true
        }
    }

    /// Forgets the local jobs, or the remote ones if the partition is remote. The store may have
    /// some of them.
    pub(crate) fn forget(&mut self, partition: Partition, local_partitions: &LocalPartitions) {
        self.known_jobs.clear(partition, local_partitions);
        self.mark_incomplete(partition, local_partitions);
    }

    /// Forgets all jobs behind the first `limit`.
    pub(super) fn forget_after(&mut self, limit: usize, local_partitions: &LocalPartitions) {
        while self.known_jobs.len() > limit {
            let Some(forgotten) = self.known_jobs.pop_last() else {
                return;
            };
            self.mark_incomplete(forgotten.workflow().partition(), local_partitions);
        }
    }

    /// Forgets the jobs that a read did not find in the rows that it covered. Jobs that came or
    /// went since the read began are newer than its answer.
    pub(crate) fn retain_found(
        &mut self,
        found: &[Option<LaneReadResult>],
        newer: &HashSet<ReadyKey>,
    ) {
        let found = |partition: Partition| found.get(usize::from(partition.0))?.as_ref();
        self.known_jobs.retain(|ready_key| {
            let Some(LaneReadResult { keys, more }) = found(ready_key.workflow().partition())
            else {
                return true;
            };
            let past_read = || *more && keys.last().is_some_and(|last| ready_key > last);
            keys.binary_search(ready_key).is_ok() || newer.contains(ready_key) || past_read()
        });
    }

    /// Records whether the store may have other jobs than those that a read found.
    pub(crate) fn record_more(
        &mut self,
        found: &[Option<LaneReadResult>],
        local_partitions: &LocalPartitions,
    ) {
        // A partition that was not read has as many rows as before.
        let more = |is_local: bool, before: bool| {
            (0..)
                .map(Partition)
                .zip(found)
                .filter(|(at, _)| local_partitions.contains(*at) == is_local)
                .any(|(_, found)| found.as_ref().map_or(before, |found| found.more))
        };
        self.more_rows = MoreRows {
            local: more(true, self.more_rows.local),
            remote: more(false, self.more_rows.remote),
        };
    }
}
