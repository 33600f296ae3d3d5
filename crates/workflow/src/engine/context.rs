//! What the desks of all partitions share: the ready jobs, those who watch, and the time of the next timer.

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

/// No timer is known.
const NEVER: u64 = u64::MAX;

/// What the desks of all partitions share.
#[derive(Debug)]
pub(crate) struct Context {
    /// How long ended workflows are kept, unless they say so themselves.
    pub(crate) retention: RetentionDefaults,
    pub(crate) home: Membership,
    pub(crate) queues: QueueCache,
    pub(super) gone: Gone,
    pub(crate) troubles: Troubles,
    pub(crate) served: Served,
    pub(super) watchers: Arc<Watchers>,
    pub(super) tally: Arc<AttemptCounts>,
    /// Who is told of each attempt that ended, if anybody.
    pub(crate) attempts: Option<Attempts>,
    /// Changes that were not written, because another server was first.
    pub(crate) conflicts: AtomicU64,
    /// For each partition the time, in microseconds, at which a sweep is to look there.
    expected: Vec<AtomicU64>,
    /// Notified when such a time has become earlier, of a partition that is at home here.
    sooner: Notify,
    /// Notified when another server has changed something that is not of one workflow.
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

    /// Notes which partitions are served again after a gap.
    pub(super) fn note_gaps(&self, now: Timestamp) {
        self.troubles
            .take_recovered()
            .into_iter()
            .for_each(|partition| self.served.begin_again(partition, now));
    }

    /// A sweep is to look at a partition at this time, or earlier.
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

    /// A sweep looks at a partition: what it expects is read again, and it looks again at `next` at the latest.
    pub(super) fn expect_only(&self, partition: Partition, next: Timestamp) {
        self.expected[usize::from(partition.0)].store(next.micros(), Relaxed);
    }

    /// Whether a sweep is to look at a partition.
    pub(super) fn is_due(&self, partition: Partition, now: Timestamp) -> bool {
        self.expected[usize::from(partition.0)].load(Relaxed) <= now.micros()
    }

    /// The earliest time at which a sweep is to look at a partition that is at home here.
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

    /// Returns when [`Context::next_due`] has become earlier.
    pub(super) async fn sooner(&self) {
        self.sooner.notified().await;
    }
}
