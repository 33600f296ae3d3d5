//! Selects the queues, or their lanes, that are to be read from the store.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::QueueCache;
use super::lane::MoreRows;
use super::ready_jobs::LaneKey;

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

impl From<String> for RefillTarget {
    fn from(queue: String) -> Self {
        Self { queue, lanes: None }
    }
}

/// How long a claim goes on if no job is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimMode {
    /// The claim answers that there are no jobs, so all of its queues are read if necessary.
    Immediate,
    /// The claim waits for [`crate::Engine::arrival_except`]. It may leave jobs to a read that is
    /// in progress.
    LongPoll,
}

/// The partitions in which a claim searches jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PartitionScope {
    /// The partitions that are assigned to this server.
    Local,
    All,
}

impl QueueCache {
    /// Maximum number of quarantined rows of one partition that the last reads of these queues
    /// skipped.
    pub(crate) fn passed_over(&self, names: &[String]) -> usize {
        let each = self.lock();
        names
            .iter()
            .filter_map(|name| Some(each.get(name.as_str())?.passed))
            .max()
            .unwrap_or(0)
    }

    /// Returns the queues of `names` that are not paused and of which the store may have more jobs
    /// than are known here. With [`PartitionScope::Local`] only jobs of local partitions count.
    /// Blocked lanes are left out. With [`ClaimMode::LongPoll`] a queue is left out while a
    /// background refill reads it.
    pub(crate) fn incomplete(
        &self,
        names: &[String],
        place: PartitionScope,
        patience: ClaimMode,
    ) -> Vec<RefillTarget> {
        let each = self.lock();
        let now = self.now();
        let trusted = self.notified_of_all.load(Relaxed);
        let to_read = |name: &String| {
            let Some(queue) = each.get(name.as_str()) else {
                return Some(name.clone().into());
            };
            if queue.paused {
                return None;
            }
            let complete = match place {
                PartitionScope::Local => queue.complete.here(patience, now),
                PartitionScope::All => {
                    queue.complete.everywhere(patience, now) && !queue.lanes.are_stale(now)
                }
            };
            if !trusted || !complete {
                let leaves_it = queue.is_read && patience == ClaimMode::LongPoll;
                return (!leaves_it).then(|| name.clone().into());
            }
            let wants =
                |more: MoreRows| more.local || (more.remote && place == PartitionScope::All);
            let lanes: Vec<LaneKey> = queue
                .lanes
                .thirsty(wants)
                .take(MAX_REFILL_LANES)
                .cloned()
                .collect();
            (!lanes.is_empty()).then(|| RefillTarget {
                queue: name.clone(),
                lanes: Some(lanes),
            })
        };
        names.iter().filter_map(to_read).collect()
    }

    /// Returns the queues that the caller must read in the background, because their known jobs may
    /// not be complete. Marks them as being read.
    pub(crate) fn overdue(&self, names: &[String], place: PartitionScope) -> Vec<RefillTarget> {
        let mut each = self.lock();
        let now = self.now();
        let mut is_overdue = |name: &&String| {
            let Some(queue) = each.get_mut(name.as_str()).filter(|queue| !queue.paused) else {
                return false;
            };
            let may = !queue.is_read
                && queue
                    .looked
                    .is_none_or(|looked| now.since(looked) > BACKGROUND_REFILL_INTERVAL);
            let overdue = may && queue.complete.is_due(place, now);
            if overdue {
                queue.looked = Some(now);
                queue.is_read = true;
            }
            overdue
        };
        names
            .iter()
            .filter(&mut is_overdue)
            .cloned()
            .map(RefillTarget::from)
            .collect()
    }

    /// Makes queues due for a read, even if they were read lately or are being read, because other
    /// servers have written to them.
    pub(crate) fn look_again(&self, names: &[String]) {
        let mut each = self.lock();
        for name in names {
            if let Some(queue) = each.get_mut(name.as_str()) {
                queue.mark_old();
                queue.looked = None;
            }
        }
    }

    /// Ends a background refill. If a queue is still incomplete, one waiting worker is woken to
    /// read it.
    pub(crate) fn end_beside(&self, queues: &[RefillTarget]) {
        let mut each = self.lock();
        let now = self.now();
        for to_read in queues {
            let Some(queue) = each.get_mut(&to_read.queue) else {
                continue;
            };
            queue.is_read = false;
            if !queue.paused && queue.complete.is_due(PartitionScope::All, now) {
                queue.wake_any();
            }
        }
    }

    /// Returns lanes with limits that have no known jobs while the store may have some. A claim
    /// reads them even if it finds enough other jobs.
    pub(crate) fn thirsty(&self, names: &[String]) -> Vec<RefillTarget> {
        let each = self.lock();
        let to_read = |name: &String| {
            let queue = each
                .get(name.as_str())
                .filter(|queue| !queue.paused && queue.lanes.has_limits())?;
            let lanes: Vec<LaneKey> = queue
                .lanes
                .thirsty(|more| more.local)
                .take(MAX_REFILL_LANES)
                .cloned()
                .collect();
            (!lanes.is_empty()).then(|| RefillTarget {
                queue: name.clone(),
                lanes: Some(lanes),
            })
        };
        names.iter().filter_map(to_read).collect()
    }

    /// Marks queues as due for a read, because other servers write too. Queues that a worker waits
    /// for are returned instead: the caller reads them at once, so claims need not.
    pub(crate) fn age(&self) -> Vec<String> {
        let mut wanted = Vec::new();
        for (name, queue) in self.lock().iter_mut() {
            if queue.is_wanted() {
                wanted.push(name.clone())
            } else {
                queue.mark_old()
            }
        }
        wanted
    }
}
