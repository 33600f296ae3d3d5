//! Selects the queues, or their lanes, that are to be read from the store.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::model::Timestamp;
use crate::queue::ready_jobs::lane::MoreRows;
use crate::queue::{LaneKey, Queue, QueueCache};

/// Interval of background refills of a queue. They find jobs whose announcement was missed, or that
/// go before the known ones.
const BACKGROUND_REFILL_INTERVAL: Duration = Duration::from_secs(10);
/// Maximum number of lanes of a queue that one refill reads because none of their jobs is known.
const MAX_REFILL_LANES: usize = 64;

/// A queue to be read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RefillTarget {
    pub(crate) queue: String,
    /// Lanes to be read. `None` if all are.
    pub(crate) lanes: Option<Vec<LaneKey>>,
}

impl RefillTarget {
    fn whole(queue: &str) -> Self {
        Self {
            queue: queue.to_owned(),
            lanes: None,
        }
    }

    /// Targets for all lanes of these queues.
    pub(crate) fn whole_queues(queues: &[String]) -> Vec<Self> {
        queues.iter().map(|queue| Self::whole(queue)).collect()
    }

    /// The lanes of a queue that have no known jobs while the store may have some, as far as they
    /// matter to `wants`. `None` if there are none.
    fn empty_lanes(name: &str, queue: &Queue, wants: impl Fn(MoreRows) -> bool) -> Option<Self> {
        let lanes = queue.ready_jobs.lanes_to_refill(wants);
        let lanes: Vec<LaneKey> = lanes.take(MAX_REFILL_LANES).cloned().collect();
        (!lanes.is_empty()).then(|| Self {
            queue: name.to_owned(),
            lanes: Some(lanes),
        })
    }
}

/// Rows that a refill reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RefillDepth {
    All,
    /// All rows, with small calls one after the other, because no caller waits for them.
    Background,
    /// Only the first rows of each partition.
    First,
}

/// How long a claim goes on if no job is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimMode {
    /// The claim answers that there are no jobs, so all of its queues are read if necessary.
    Immediate,
    /// The claim waits for [`crate::Engine::arrival_for`]. It may leave jobs to a read that is
    /// in progress.
    LongPoll,
}

/// Partitions in which a claim looks for jobs: one reach after the other, until there are some.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// The partitions that are assigned to this server.
    Own,
    /// A few of the others at random.
    Few,
    /// All partitions that are assigned to other servers.
    Others,
}

/// The partitions of which unknown jobs count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PartitionScope {
    /// The partitions that are assigned to this server.
    Local,
    All,
}

impl QueueCache {
    /// Maximum number of quarantined rows of one partition that the last reads of these queues
    /// skipped.
    pub(crate) fn max_skipped_rows(&self, names: &[String]) -> usize {
        let by_name = self.lock();
        names
            .iter()
            .filter_map(|name| Some(by_name.get(name.as_str())?.skipped_rows))
            .max()
            .unwrap_or(0)
    }

    /// Returns the queues of `names` that are not paused and of which the store may have more jobs
    /// than are known here. With [`Reach::Own`] only jobs of local partitions count. Blocked lanes
    /// are left out.
    ///
    /// A claim with [`ClaimMode::Immediate`] reads all queues if there are other servers, because
    /// the notice of a job may be on its way. One with [`ClaimMode::LongPoll`] leaves a queue that a
    /// background refill reads, except for a few partitions: it need not wait for that.
    pub(crate) fn incomplete(
        &self,
        names: &[String],
        reach: Reach,
        mode: ClaimMode,
    ) -> Vec<RefillTarget> {
        let by_name = self.lock();
        let now = self.now();
        let scope = if reach == Reach::Own {
            PartitionScope::Local
        } else {
            PartitionScope::All
        };
        let trusts_notices = self.notified_of_all.load(Relaxed)
            && (mode == ClaimMode::LongPoll || !self.has_remote_partitions());
        let to_read = |name: &String| {
            let Some(queue) = by_name.get(name.as_str()) else {
                return Some(RefillTarget::whole(name));
            };
            if queue.paused {
                return None;
            }
            if !trusts_notices || !is_complete(queue, scope, now) {
                let is_left_to_refill =
                    queue.is_being_read && mode == ClaimMode::LongPoll && reach != Reach::Few;
                return (!is_left_to_refill).then(|| RefillTarget::whole(name));
            }
            let wants =
                |more: MoreRows| more.local || (more.remote && scope == PartitionScope::All);
            RefillTarget::empty_lanes(name, queue, wants)
        };
        names.iter().filter_map(to_read).collect()
    }

    /// Returns the queues that the caller must read in the background, because their known jobs may
    /// not be complete. Marks them as being read.
    pub(crate) fn overdue(&self, names: &[String], scope: PartitionScope) -> Vec<RefillTarget> {
        let mut by_name = self.lock();
        let now = self.now();
        let mut is_overdue = |name: &&String| {
            let Some(queue) = by_name.get_mut(name.as_str()).filter(|queue| !queue.paused) else {
                return false;
            };
            let may = !queue.is_being_read
                && queue
                    .last_background_refill
                    .is_none_or(|began| now.since(began) > BACKGROUND_REFILL_INTERVAL);
            let overdue = may && !queue.completeness.covers(scope, now);
            if overdue {
                queue.last_background_refill = Some(now);
                queue.is_being_read = true;
            }
            overdue
        };
        names
            .iter()
            .filter(&mut is_overdue)
            .map(|queue| RefillTarget::whole(queue))
            .collect()
    }

    /// Makes queues due for a read, even if they were read lately or are being read, because other
    /// servers have written to them.
    pub(crate) fn mark_overdue(&self, names: &[String]) {
        let mut by_name = self.lock();
        for name in names {
            if let Some(queue) = by_name.get_mut(name.as_str()) {
                queue.mark_incomplete();
                queue.last_background_refill = None;
            }
        }
    }

    /// Ends a background refill. If a queue is still incomplete, one waiting worker is woken to
    /// read it.
    pub(crate) fn end_background_refill(&self, queues: &[RefillTarget]) {
        let mut by_name = self.lock();
        let now = self.now();
        for to_read in queues {
            let Some(queue) = by_name.get_mut(&to_read.queue) else {
                continue;
            };
            queue.is_being_read = false;
            if !queue.paused && !queue.completeness.covers(PartitionScope::All, now) {
                queue.wake_any();
            }
        }
    }

    /// Returns lanes that have no known local jobs while the store may have some. A claim reads them
    /// even if it finds enough other jobs.
    pub(crate) fn lanes_to_refill(&self, names: &[String]) -> Vec<RefillTarget> {
        let by_name = self.lock();
        let to_read = |name: &String| {
            let queue = by_name.get(name.as_str()).filter(|queue| !queue.paused)?;
            RefillTarget::empty_lanes(name, queue, |more| more.local)
        };
        names.iter().filter_map(to_read).collect()
    }

    /// Marks queues as incomplete, because other servers write too. Queues that a worker waits for
    /// are returned instead: the caller reads them at once. Of queues that no worker requested
    /// lately, all jobs are forgotten: other servers claim them without a notice.
    pub(crate) fn mark_unwatched_incomplete(&self) -> Vec<String> {
        let mut watched = Vec::new();
        let now = self.now();
        for (name, queue) in self.lock().iter_mut() {
            if queue.has_waiters() {
                watched.push(name.clone());
            } else if queue.is_served(now) {
                queue.mark_incomplete();
            } else {
                queue.forget_all();
            }
        }
        watched
    }

    /// Forgets all known jobs of queues, so that the next claims read them again.
    pub(crate) fn forget_all(&self, names: &[String]) {
        let mut by_name = self.lock();
        for name in names {
            if let Some(queue) = by_name.get_mut(name.as_str()) {
                queue.forget_all();
            }
        }
    }
}

/// Whether the store is known to have no other jobs of a queue in `scope`.
fn is_complete(queue: &Queue, scope: PartitionScope, now: Timestamp) -> bool {
    queue.completeness.covers(scope, now)
        && (scope == PartitionScope::Local || !queue.ready_jobs.are_stale(now))
}
