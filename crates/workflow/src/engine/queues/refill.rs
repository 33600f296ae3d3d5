//! Reads of ready rows in progress. Changes that arrive here during a read are newer than its
//! answer.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use hashbrown::HashSet;

use super::QueueCache;
use super::lane::LaneFound;
use super::ready_jobs::LaneKey;
use crate::codec::rows::{ReadyKey, Row};

/// The jobs of a queue that came or went while reads were in progress.
#[derive(Debug, Default)]
pub(super) struct ChangeLog {
    log: VecDeque<ReadyKey>,
    /// Number of changes before the first of `log`.
    before: u64,
    /// Reads in progress, by the number of changes when they began.
    reads: BTreeMap<u64, usize>,
}

impl ChangeLog {
    pub(super) fn note(&mut self, head: ReadyKey) {
        if !self.reads.is_empty() {
            self.log.push_back(head);
        }
    }

    fn begin(&mut self) -> u64 {
        let began = self.before + self.log.len() as u64;
        *self.reads.entry(began).or_default() += 1;
        began
    }

    /// Ends a read. Returns the jobs that came or went since it began.
    pub(super) fn end(&mut self, began: u64) -> HashSet<ReadyKey> {
        let since = self
            .log
            .iter()
            .skip((began - self.before) as usize)
            .copied()
            .collect();
        if let Some(reads) = self.reads.get_mut(&began) {
            *reads -= 1;
            if *reads == 0 {
                self.reads.remove(&began);
            }
        }
        let oldest = self
            .reads
            .keys()
            .next()
            .copied()
            .unwrap_or(self.before + self.log.len() as u64);
        self.log.drain(..(oldest - self.before) as usize);
        self.before = oldest;
        since
    }

    pub(super) fn are_awaited(&self) -> bool {
        !self.reads.is_empty()
    }
}

/// State of a queue when a read of it began.
#[derive(Debug, Clone, Copy)]
pub(super) struct RefillStart {
    pub(super) change: u64,
    /// Value of [`super::queue::Queue::incomplete_marks`].
    pub(super) doubts: u64,
}

/// Rows of a queue that a read found, by partition. `None` if a partition was not read.
#[derive(Debug, Default)]
pub(crate) struct RefillRows {
    pub(crate) partitions: Vec<Option<PartitionRows>>,
    /// Lanes that were blocked when the read began. The read says nothing about them: they are read
    /// when their known jobs are used up.
    pub(crate) skipped: HashSet<LaneKey>,
}

/// Rows of a queue that a read found in one partition.
#[derive(Debug, Default)]
pub(crate) struct PartitionRows {
    /// The rows in ascending order.
    pub(crate) rows: Vec<Row>,
    /// Lanes that the read covered.
    pub(crate) lanes: LanesRead,
    /// Lanes that may have more rows than these.
    pub(crate) more: HashSet<LaneKey>,
}

/// Lanes of a queue that a read covered.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum LanesRead {
    /// All lanes of the queue.
    #[default]
    All,
    /// All lanes up to this one, in the order of their rows: handler, then key of limits.
    UpTo(LaneKey),
    /// These lanes.
    Only(Arc<[LaneKey]>),
    /// No lane completely: each may have other rows.
    Some,
}

impl PartitionRows {
    /// Whether the read covered every lane of the queue.
    pub(super) fn has_all_lanes(&self) -> bool {
        self.lanes == LanesRead::All
    }

    /// Whether there may be lanes behind those that the read covered.
    pub(crate) fn is_cut(&self) -> bool {
        matches!(self.lanes, LanesRead::UpTo(_))
    }

    fn looked_at(&self, key: &LaneKey) -> bool {
        match &self.lanes {
            LanesRead::All => true,
            LanesRead::UpTo(last) => (&key.handler, &key.limits) <= (&last.handler, &last.limits),
            LanesRead::Only(lanes) => lanes.contains(key),
            LanesRead::Some => false,
        }
    }
}

impl RefillRows {
    /// Whether the read may cover lanes of which it found no row.
    pub(super) fn is_of_all_lanes(&self) -> bool {
        self.partitions
            .iter()
            .flatten()
            .any(|read| !matches!(read.lanes, LanesRead::Some))
    }

    /// Returns the rows of a lane by partition, from its rows of all partitions.
    pub(super) fn of_lane(
        &self,
        key: &LaneKey,
        rows: &[(usize, ReadyKey, &Row)],
    ) -> Vec<Option<LaneFound>> {
        let of = |read: &PartitionRows| {
            (read.looked_at(key) || read.more.contains(key)).then(|| LaneFound {
                places: Vec::new(),
                more: read.more.contains(key),
            })
        };
        let mut found: Vec<_> = self
            .partitions
            .iter()
            .map(|read| read.as_ref().and_then(of))
            .collect();
        for (at, place, _) in rows {
            // A lane that the read did not cover completely has at least these rows.
            found[*at]
                .get_or_insert_with(|| LaneFound {
                    places: Vec::new(),
                    more: true,
                })
                .places
                .push(*place);
        }
        found
    }
}

/// The rows of a read that the queues did not have.
#[derive(Debug, Default)]
pub(crate) struct Refilled {
    /// Jobs that were not known.
    pub(crate) new: Vec<ReadyKey>,
    /// Rows that were found again although their jobs were recorded as orphans.
    pub(crate) stale: Vec<Row>,
}

/// A read of some queues that is in progress. Dropping it ends the read.
#[derive(Debug)]
pub(crate) struct RefillGuard<'a> {
    queues: &'a QueueCache,
    /// Queues without an answer so far.
    began: Vec<(&'a str, RefillStart)>,
}

impl QueueCache {
    /// Records that these queues are about to be read from the store.
    pub(crate) fn read<'a>(&'a self, names: &'a [String]) -> RefillGuard<'a> {
        let mut each = self.lock();
        let begin = |name: &'a String| {
            let queue = self.entry(&mut each, name);
            (
                name.as_str(),
                RefillStart {
                    change: queue.changes.begin(),
                    doubts: queue.doubts,
                },
            )
        };
        RefillGuard {
            queues: self,
            began: names.iter().map(begin).collect(),
        }
    }
}

impl RefillGuard<'_> {
    /// Merges the rows that were found of each queue, in the order of the queues.
    pub(crate) fn finish(mut self, found: impl IntoIterator<Item = RefillRows>) -> Refilled {
        let mut all = Refilled::default();
        for ((name, began), found) in std::mem::take(&mut self.began).into_iter().zip(found) {
            let one = self.queues.refill(name, began, &found);
            all.new.extend(one.new);
            all.stale.extend(one.stale);
        }
        all
    }
}

impl Drop for RefillGuard<'_> {
    fn drop(&mut self) {
        let mut each = self.queues.lock();
        for (name, began) in self.began.drain(..) {
            if let Some(queue) = each.get_mut(name) {
                queue.changes.end(began.change);
            }
        }
    }
}
