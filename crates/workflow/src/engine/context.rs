//! State that the actors of all partitions share: ready jobs, watchers, and the times of the next
//! timers.

pub(crate) mod attempt_counts;
pub(crate) mod served;
pub(crate) mod watchers;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tokio::sync::Notify;

use self::attempt_counts::AttemptCounts;
use self::served::Served;
use self::watchers::Watchers;
use super::attempts::Attempts;
use super::membership::Membership;
use super::queues::QueueCache;
use super::store_health::Troubles;
use super::sweep::orphans::Gone;
use crate::id::Partition;
use crate::state::RetentionDefaults;
use crate::time::Timestamp;

/// Time of the next timer, if none is known.
const NEVER: u64 = u64::MAX;

/// State that the actors of all partitions share.
#[derive(Debug)]
pub(crate) struct Context {
    /// Retention of ended workflows whose definition sets none.
    pub(crate) retention: RetentionDefaults,
    pub(crate) home: Membership,
    pub(crate) queues: QueueCache,
    pub(super) gone: Gone,
    pub(crate) troubles: Troubles,
    pub(crate) served: Served,
    pub(super) watchers: Arc<Watchers>,
    pub(super) tally: Arc<AttemptCounts>,
    /// Callback for each attempt that ended, if any.
    pub(crate) attempts: Option<Attempts>,
    /// Number of changes that were not written, because another server was first.
    pub(crate) conflicts: AtomicU64,
    /// Time of the next sweep of each partition, in microseconds.
    expected: Vec<AtomicU64>,
    /// Notified when such a time of a local partition becomes earlier.
    sooner: Notify,
    /// Notified when another server announces a change that is not of one workflow.
    pub(crate) called_out: Notify,
}

impl Context {
    pub(super) fn new(
        partitions: u16,
        retention: RetentionDefaults,
        attempts: Option<Attempts>,
    ) -> Self {
        let home = Membership::new(partitions);
        Self {
            retention,
            queues: QueueCache::new(home.mine.clone()),
            home,
            gone: Gone::default(),
            troubles: Troubles::default(),
            served: Served::new(partitions),
            watchers: Arc::default(),
            tally: Arc::default(),
            attempts,
            conflicts: AtomicU64::new(0),
            expected: (0..partitions).map(|_| AtomicU64::new(0)).collect(),
            sooner: Notify::new(),
            called_out: Notify::new(),
        }
    }

    /// Records which partitions are served again after a gap.
    pub(super) fn note_gaps(&self, now: Timestamp) {
        self.troubles
            .take_recovered()
            .into_iter()
            .for_each(|partition| self.served.begin_again(partition, now));
    }

    /// Schedules a sweep of a partition at this time, or earlier.
    pub(crate) fn expect_by(&self, partition: Partition, moment: Timestamp) {
        let Some(expected) = self.expected.get(usize::from(partition.0)) else {
            return;
        };
        if moment.micros() < expected.fetch_min(moment.micros(), Relaxed)
            && self.home.mine.contains(partition)
        {
            self.sooner.notify_one();
        }
    }

    /// Replaces the time of the next sweep of a partition. A sweep that begins reads the timers of
    /// the partition again, and the next one is due at `next` at the latest.
    pub(super) fn expect_only(&self, partition: Partition, next: Timestamp) {
        self.expected[usize::from(partition.0)].store(next.micros(), Relaxed);
    }

    /// Whether a sweep of a partition is due.
    pub(super) fn is_due(&self, partition: Partition, now: Timestamp) -> bool {
        self.expected[usize::from(partition.0)].load(Relaxed) <= now.micros()
    }

    /// Returns the time of the earliest sweep of a local partition.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        let each = self
            .home
            .mine
            .each()
            .map(|at| self.expected[usize::from(at.0)].load(Relaxed));
        each.min()
            .filter(|&micros| micros != NEVER)
            .map(Timestamp::from_micros)
    }

    /// Waits until [`Context::next_sweep`] becomes earlier.
    pub(super) async fn sooner(&self) {
        self.sooner.notified().await;
    }
}
