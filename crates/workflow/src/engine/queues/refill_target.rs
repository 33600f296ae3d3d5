//! Which queues, or which of their lanes, are to be read from the store, and when.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::QueueCache;
use super::lane::MoreRows;
use super::ready_jobs::LaneKey;

/// How often a queue is read beside the claims: there may be jobs that were missed, or that go before those that are known.
const BACKGROUND_REFILL_INTERVAL: Duration = Duration::from_secs(10);
/// So many lanes of a queue are read at once because no job of theirs is known any more.
const MAX_REFILL_LANES: usize = 64;

/// A queue to be read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RefillTarget {
    pub(crate) queue: String,
    /// These lanes only. None: all that there are.
    pub(crate) lanes: Option<Vec<LaneKey>>,
}

impl From<String> for RefillTarget {
    fn from(queue: String) -> Self {
        Self { queue, lanes: None }
    }
}

/// What whoever claims does when no job is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimMode {
    /// It is told that there is none, so all of its queues are read if need be.
    Immediate,
    /// It waits for [`crate::Engine::arrival_except`]. What others are about to find may be left to them.
    LongPoll,
}

/// Where jobs are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PartitionScope {
    /// In the partitions that are at home here.
    Local,
    All,
}

impl QueueCache {
    /// How many rows of one partition the last reads of these queues passed over.
    pub(crate) fn passed_over(&self, names: &[String]) -> usize {
        let each = self.lock();
        names
            .iter()
            .filter_map(|name| Some(each.get(name.as_str())?.passed))
            .max()
            .unwrap_or(0)
    }

    /// Those of `names` that are not paused and of which the store may have more jobs than are known here; with [`PartitionScope::Local`], more that are
    /// at home here. Lanes that are known to have no room under a limit are left alone. Whoever is patient leaves a queue to a read that is under
    /// way.
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

    /// Those of these queues that are to be read beside the claims, which the caller does: not all of their jobs may be known here, or anywhere.
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

    /// Others have written to these queues: they are to be read again, also if they were read not long ago, or are being read.
    pub(crate) fn look_again(&self, names: &[String]) {
        let mut each = self.lock();
        for name in names {
            if let Some(queue) = each.get_mut(name.as_str()) {
                queue.mark_old();
                queue.looked = None;
            }
        }
    }

    /// A read beside the claims is over. If it did not find all, one of those who wait looks for itself.
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

    /// What a claim of these queues must not pass over although it finds enough other jobs: lanes that had jobs, and may have more.
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

    /// Marks queues as to be read again, because other servers write too. Those that a worker waits for are returned instead, to be read now: claims
    /// need not read them meanwhile.
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
