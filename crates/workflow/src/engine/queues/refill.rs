//! Reads of ready rows that are under way. What changes here during a read is newer than its answer.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use hashbrown::HashSet;

use super::QueueCache;
use super::lane::LaneFound;
use super::ready_jobs::LaneKey;
use crate::codec::rows::{ReadyKey, Row};

/// The jobs of a queue that came or went while reads were under way.
#[derive(Debug, Default)]
pub(super) struct ChangeLog {
    log: VecDeque<ReadyKey>,
    /// How many came before the first of `log`.
    before: u64,
    /// Reads under way, by what was noted when they began.
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

    /// Ends a read. Returns what came or went since it began.
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

/// When a read of a queue began.
#[derive(Debug, Clone, Copy)]
pub(super) struct RefillStart {
    pub(super) change: u64,
    /// See [`super::queue::Queue::doubts`].
    pub(super) doubts: u64,
}

/// What a read found of a queue, by partition. None: a partition was not read.
#[derive(Debug, Default)]
pub(crate) struct RefillRows {
    pub(crate) partitions: Vec<Option<PartitionRows>>,
    /// Lanes that had no room under their limits when it began: nothing is said about them, and they are read when what is known of them is used up.
    pub(crate) skipped: HashSet<LaneKey>,
}

/// What a read found of a queue in one partition.
#[derive(Debug, Default)]
pub(crate) struct PartitionRows {
    /// Its rows, lowest first.
    pub(crate) rows: Vec<Row>,
    /// Which lanes were looked at.
    pub(crate) lanes: LanesRead,
    /// Those of them that may have more rows than these.
    pub(crate) more: HashSet<LaneKey>,
}

/// Which lanes of a queue a read looked at.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum LanesRead {
    /// All that there are.
    #[default]
    All,
    /// All up to one, in the order of their rows: its handler and the key of its limits.
    UpTo(LaneKey),
    /// These.
    Only(Arc<[LaneKey]>),
    /// None completely: there may be others of each.
    Some,
}

impl PartitionRows {
    /// Whether each lane that there is was looked at.
    pub(super) fn has_all_lanes(&self) -> bool {
        self.lanes == LanesRead::All
    }

    /// Whether there may be lanes behind those that were looked at.
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
    /// Whether it may say something about lanes of which it found no row.
    pub(super) fn is_of_all_lanes(&self) -> bool {
        self.partitions
            .iter()
            .flatten()
            .any(|read| !matches!(read.lanes, LanesRead::Some))
    }

    /// What it found of a lane, by partition, of its rows in all partitions.
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
            // Of a lane that was not looked at completely it is known that there are these.
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

/// What became of the rows that a read found.
#[derive(Debug, Default)]
pub(crate) struct Refilled {
    /// Jobs that were not known.
    pub(crate) new: Vec<ReadyKey>,
    /// Rows that were found again although their jobs were not ready before.
    pub(crate) stale: Vec<Row>,
}

/// A read of some queues that is under way. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct RefillGuard<'a> {
    queues: &'a QueueCache,
    /// Those of which no answer came yet.
    began: Vec<(&'a str, RefillStart)>,
}

impl QueueCache {
    /// Notes that these queues are about to be read from the store.
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
    /// Takes over what was found of each queue, in their order.
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
