//! State that the actors of all partitions share: ready jobs, watchers, and the times of the next
//! timers.

pub(crate) mod attempt_counts;
pub(crate) mod attempts;
pub(crate) mod error;
pub(crate) mod served_since;
pub(crate) mod thread;
pub(crate) mod watchers;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tokio::sync::Notify;

use self::attempt_counts::AttemptCounts;
use self::attempts::AttemptObserver;
use self::served_since::ServedSince;
use self::watchers::Watchers;
use super::sweep::orphans::OrphanRows;
use super::{Membership, StoreHealth};
use crate::model::{Partition, RetentionDefaults, Timestamp};
use crate::queue::QueueCache;

/// Time of the next timer, if none is known.
const NEVER: u64 = u64::MAX;

/// State that the actors of all partitions share.
#[derive(Debug)]
pub(crate) struct Context {
    /// Retention of ended workflows whose definition sets none.
    pub(crate) retention: RetentionDefaults,
    pub(crate) membership: Membership,
    pub(crate) queues: QueueCache,
    pub(super) orphan_rows: OrphanRows,
    pub(crate) store_health: StoreHealth,
    pub(crate) served_since: ServedSince,
    pub(super) watchers: Arc<Watchers>,
    pub(super) attempt_counts: Arc<AttemptCounts>,
    /// Callback for each attempt that ended, if any.
    pub(crate) attempt_observer: Option<AttemptObserver>,
    /// Number of changes that were not written, because another server was first.
    pub(crate) conflicts: AtomicU64,
    /// Time of the next sweep of each partition, in microseconds.
    next_sweeps: Vec<AtomicU64>,
    /// Notified when such a time of a local partition becomes earlier.
    earlier_sweep: Notify,
    /// Notified when another server announces a change that is not of one workflow.
    pub(crate) broadcast_received: Notify,
}

impl Context {
    pub(crate) fn new(
        partitions: u16,
        retention: RetentionDefaults,
        attempt_observer: Option<AttemptObserver>,
    ) -> Self {
        let membership = Membership::new(partitions);
        Self {
            retention,
            queues: QueueCache::new(membership.local_partitions.clone()),
            membership,
            orphan_rows: OrphanRows::default(),
            store_health: StoreHealth::default(),
            served_since: ServedSince::new(partitions),
            watchers: Arc::default(),
            attempt_counts: Arc::default(),
            attempt_observer,
            conflicts: AtomicU64::new(0),
            next_sweeps: (0..partitions).map(|_| AtomicU64::new(0)).collect(),
            earlier_sweep: Notify::new(),
            broadcast_received: Notify::new(),
        }
    }

    /// Records which partitions are served again after a gap.
    pub(super) fn record_recoveries(&self, now: Timestamp) {
        self.store_health
            .drain_recovered()
            .into_iter()
            .for_each(|partition| self.served_since.restart(partition, now));
    }

    /// Schedules a sweep of a partition at this time, or earlier.
    pub(crate) fn schedule_sweep(&self, partition: Partition, due: Timestamp) {
        let Some(next_sweep) = self.next_sweeps.get(usize::from(partition.0)) else {
            return;
        };
        if due.micros() < next_sweep.fetch_min(due.micros(), Relaxed)
            && self.membership.local_partitions.contains(partition)
        {
            self.earlier_sweep.notify_one();
        }
    }

    /// Replaces the time of the next sweep of a partition. A sweep that begins reads the timers of
    /// the partition again, and the next one is due at `next` at the latest.
    pub(super) fn reset_next_sweep(&self, partition: Partition, next: Timestamp) {
        self.next_sweeps[usize::from(partition.0)].store(next.micros(), Relaxed);
    }

    /// Whether a sweep of a partition is due.
    pub(super) fn is_sweep_due(&self, partition: Partition, now: Timestamp) -> bool {
        self.next_sweeps[usize::from(partition.0)].load(Relaxed) <= now.micros()
    }

    /// Returns the time of the earliest sweep of a local partition.
    pub(super) fn next_sweep(&self) -> Option<Timestamp> {
        let times = self
            .membership
            .local_partitions
            .iter()
            .map(|partition| self.next_sweeps[usize::from(partition.0)].load(Relaxed));
        times
            .min()
            .filter(|&micros| micros != NEVER)
            .map(Timestamp::from_micros)
    }

    /// Waits until [`Context::next_sweep`] becomes earlier.
    pub(super) async fn earlier_sweep(&self) {
        self.earlier_sweep.notified().await;
    }
}
