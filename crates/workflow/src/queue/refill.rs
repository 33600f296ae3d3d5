//! Reads of ready rows in progress. Changes that arrive here during a read are newer than its
//! answer.

pub(crate) mod refill_target;
pub(crate) mod round_robin;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use hashbrown::HashSet;

use super::ready_jobs::lane::LaneReadResult;
use super::{LaneKey, QueueCache};
use crate::codec::{ReadyKey, Row};
use crate::model::Partition;

/// A change of what is known of a queue.
#[derive(Debug)]
pub(super) enum QueueChange {
    /// A job came or went.
    Job(ReadyKey),
    /// A lane may have jobs that are not known here.
    LaneIncomplete(LaneKey),
    /// Any lane of the queue may have jobs that are not known here.
    QueueIncomplete,
}

/// The changes since a read began. They are newer than its answer.
#[derive(Debug, Default)]
pub(super) struct NewerChanges {
    pub(super) jobs: HashSet<ReadyKey>,
    pub(super) incomplete_lanes: HashSet<LaneKey>,
}

/// The changes of a queue while reads are in progress.
#[derive(Debug, Default)]
pub(super) struct ChangeLog {
    log: VecDeque<QueueChange>,
    /// Number of changes before the first of `log`.
    dropped: u64,
    /// Reads in progress, by the number of changes when they began.
    reads: BTreeMap<u64, usize>,
}

impl ChangeLog {
    pub(super) fn record(&mut self, change: QueueChange) {
        if !self.reads.is_empty() {
            self.log.push_back(change);
        }
    }

    fn begin(&mut self) -> u64 {
        let began = self.dropped + self.log.len() as u64;
        *self.reads.entry(began).or_default() += 1;
        began
    }

    /// Returns the changes since a read began.
    pub(super) fn since(&self, began: u64) -> NewerChanges {
        let mut newer = NewerChanges::default();
        for change in self.log.iter().skip((began - self.dropped) as usize) {
            match change {
                QueueChange::Job(ready_key) => _ = newer.jobs.insert(*ready_key),
                QueueChange::LaneIncomplete(key) => _ = newer.incomplete_lanes.insert(key.clone()),
                QueueChange::QueueIncomplete => {}
            }
        }
        newer
    }

    /// Whether the whole queue was marked since a read began.
    pub(super) fn is_incomplete_since(&self, began: u64) -> bool {
        let mut since = self.log.iter().skip((began - self.dropped) as usize);
        since.any(|change| matches!(change, QueueChange::QueueIncomplete))
    }

    /// Ends a read.
    pub(super) fn end(&mut self, began: u64) {
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
            .unwrap_or(self.dropped + self.log.len() as u64);
        self.log.drain(..(oldest - self.dropped) as usize);
        self.dropped = oldest;
    }

    pub(super) fn has_readers(&self) -> bool {
        !self.reads.is_empty()
    }
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
    pub(crate) truncated_lanes: HashSet<LaneKey>,
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
}

impl PartitionRows {
    /// Adds rows of lanes behind the covered ones, at most `lane_limit` of a lane. `all` says whether
    /// these are all lanes. Rows of skipped lanes are left out.
    pub(crate) fn add_lanes(
        &mut self,
        rows: Vec<Row>,
        all: bool,
        lane_limit: usize,
        skipped: &HashSet<LaneKey>,
    ) {
        let mut last: Option<(LaneKey, usize)> = None;
        for row in rows {
            let Some(lane) = LaneKey::from_row(&row) else {
                continue;
            };
            let number = match &last {
                Some((same, number)) if *same == lane => number + 1,
                _ => 1,
            };
            if !skipped.contains(&lane) {
                if number >= lane_limit {
                    self.truncated_lanes.insert(lane.clone());
                }
                self.rows.push(row);
            }
            last = Some((lane, number));
        }
        self.lanes = match last {
            _ if all => LanesRead::All,
            Some((last, _)) => LanesRead::UpTo(last),
            None => std::mem::take(&mut self.lanes),
        };
    }

    /// Whether the read covered every lane of the queue.
    pub(super) fn has_all_lanes(&self) -> bool {
        self.lanes == LanesRead::All
    }

    /// Whether there may be lanes behind those that the read covered.
    fn is_truncated(&self) -> bool {
        matches!(self.lanes, LanesRead::UpTo(_))
    }

    fn covers(&self, key: &LaneKey) -> bool {
        match &self.lanes {
            LanesRead::All => true,
            LanesRead::UpTo(last) => (&key.handler, &key.limits) <= (&last.handler, &last.limits),
            LanesRead::Only(lanes) => lanes.contains(key),
        }
    }
}

impl RefillRows {
    /// Whether one of these partitions was read.
    pub(super) fn has_read(&self, is_one: impl Fn(Partition) -> bool) -> bool {
        let mut partitions = (0_u16..).map(Partition).zip(&self.partitions);
        partitions.any(|(at, read)| read.is_some() && is_one(at))
    }

    /// Whether the queue was read in all partitions, and not only some of its lanes.
    pub(super) fn is_of_all_partitions(&self) -> bool {
        let is_whole = |read: &PartitionRows| !matches!(read.lanes, LanesRead::Only(_));
        self.partitions
            .iter()
            .all(|read| read.as_ref().is_some_and(is_whole))
    }

    /// Returns the rows of a lane by partition, from its rows of all partitions.
    pub(super) fn lane_results(
        &self,
        key: &LaneKey,
        rows: &[(usize, ReadyKey, &Row)],
    ) -> Vec<Option<LaneReadResult>> {
        let read_result = |read: &PartitionRows| {
            (read.covers(key) || read.truncated_lanes.contains(key)).then(|| LaneReadResult {
                keys: Vec::new(),
                more: read.truncated_lanes.contains(key),
            })
        };
        let mut found: Vec<_> = self
            .partitions
            .iter()
            .map(|read| read.as_ref().and_then(read_result))
            .collect();
        for (at, ready_key, _) in rows {
            // A lane that the read did not cover completely has at least these rows.
            found[*at]
                .get_or_insert_with(|| LaneReadResult {
                    keys: Vec::new(),
                    more: true,
                })
                .keys
                .push(*ready_key);
        }
        found
    }
}

/// Result of a read.
#[derive(Debug, Default)]
pub(crate) struct RefillResult {
    /// Jobs that were not known.
    pub(crate) new_jobs: Vec<ReadyKey>,
    /// Rows that were found again although their jobs were recorded as orphans.
    pub(crate) stale_rows: Vec<Row>,
    /// Queues with lanes that were not read.
    pub(crate) truncated_queues: Vec<String>,
}

/// A read of some queues that is in progress. Dropping it ends the read.
#[derive(Debug)]
pub(crate) struct RefillGuard<'a> {
    queues: &'a QueueCache,
    /// Queues without an answer so far, each with the number of its changes when the read began.
    pending: Vec<(&'a str, u64)>,
}

impl QueueCache {
    /// Records that these queues are about to be read from the store.
    pub(crate) fn begin_refill<'a>(&'a self, names: &'a [String]) -> RefillGuard<'a> {
        let mut by_name = self.lock();
        let begin = |name: &'a String| {
            let queue = self.queue_mut(&mut by_name, name);
            (name.as_str(), queue.changes.begin())
        };
        RefillGuard {
            queues: self,
            pending: names.iter().map(begin).collect(),
        }
    }
}

impl RefillGuard<'_> {
    /// Merges the rows that were found of each queue, in the order of the queues.
    pub(crate) fn finish(mut self, found: impl IntoIterator<Item = RefillRows>) -> RefillResult {
        let mut result = RefillResult::default();
        for ((name, began), found) in std::mem::take(&mut self.pending).into_iter().zip(found) {
            let refilled = self.queues.merge_refill(name, began, &found);
            result.new_jobs.extend(refilled.new_jobs);
            result.stale_rows.extend(refilled.stale_rows);
            if found
                .partitions
                .iter()
                .flatten()
                .any(PartitionRows::is_truncated)
            {
                result.truncated_queues.push(name.to_owned());
            }
        }
        result
    }
}

impl Drop for RefillGuard<'_> {
    fn drop(&mut self) {
        let mut by_name = self.queues.lock();
        for (name, began) in self.pending.drain(..) {
            if let Some(queue) = by_name.get_mut(name) {
                queue.changes.end(began);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::ReadyJob;
    use crate::model::{JobIndex, Timestamp, WorkflowId};
    use crate::queue::cache::{ClaimEnd, DequeueRequest};
    use crate::queue::{ClaimMode, ExcludedJobs, LocalPartitions, Reach, RefillTarget};

    const NAME: &str = "q";

    /// What is left to read after a read that found no rows, if `during` happened meanwhile.
    fn left_after_read(during: impl FnOnce(&QueueCache)) -> Vec<RefillTarget> {
        let queues = QueueCache::new(Arc::new(LocalPartitions::all(1)));
        let names = [NAME.to_owned()];
        let read = queues.begin_refill(&names);
        during(&queues);
        read.finish([found(vec![Vec::new()])]);
        queues.incomplete(&names, Reach::Others, ClaimMode::Immediate)
    }

    /// The row of a job without limits.
    fn row(partition: u16) -> Row {
        let since = Timestamp::from_micros(1);
        let job = ReadyJob {
            queue: NAME.to_owned(),
            handler: String::new(),
            limit_key: String::new(),
            priority: 0,
            since,
            workflow: WorkflowId::new(since, Partition(partition), 1),
            job: JobIndex(0),
        };
        job.row()
    }

    /// What a read found if all partitions have these rows.
    fn found(rows: Vec<Vec<Row>>) -> RefillRows {
        let read = |rows| {
            Some(PartitionRows {
                rows,
                ..PartitionRows::default()
            })
        };
        RefillRows {
            partitions: rows.into_iter().map(read).collect(),
            ..RefillRows::default()
        }
    }

    #[test]
    fn a_job_that_goes_during_a_read_is_not_taken_from_it() {
        let queues = QueueCache::new(Arc::new(LocalPartitions::all(1)));
        let names = [NAME.to_owned()];
        let rows = || found(vec![vec![row(0)]]);
        let read = queues.begin_refill(&names);
        queues.apply_rows(&[row(0)], &[]);
        assert!(read.finish([rows()]).new_jobs.is_empty());
        let again = queues.begin_refill(&names).finish([rows()]);
        assert_eq!(again.new_jobs.len(), 1);
    }

    #[test]
    fn a_row_of_another_partition_is_no_job() {
        let queues = QueueCache::new(Arc::new(LocalPartitions::all(1)));
        let names = [NAME.to_owned()];
        let read = queues.begin_refill(&names);
        let read = read.finish([found(vec![vec![row(1)]])]);
        assert_eq!((read.new_jobs.len(), read.stale_rows.len()), (0, 0));
        assert_eq!(queues.known_job_count(NAME), 0);
    }

    #[test]
    fn a_lane_without_local_jobs_is_read_although_it_has_remote_ones() {
        let local_partitions = LocalPartitions::all(2);
        local_partitions.assign(Partition(1), false);
        let queues = QueueCache::new(Arc::new(local_partitions));
        let names = [NAME.to_owned()];
        let rows = found(vec![vec![row(0)], vec![row(1)]]);
        queues.begin_refill(&names).finish([rows]);
        assert_eq!(
            (
                queues.known_job_count(NAME),
                queues.lanes_to_refill(&names).len()
            ),
            (2, 0)
        );
        let excluded = ExcludedJobs::default();
        let request = DequeueRequest {
            queues: &names,
            handlers: None,
            except: &excluded,
        };
        let refused = queues.dequeue(request, 1).remove(0);
        assert_eq!(refused.workflow().partition(), Partition(0));
        queues.finish_claim(&refused, ClaimEnd::Unknown);
        assert_eq!(
            (
                queues.known_job_count(NAME),
                queues.lanes_to_refill(&names).len()
            ),
            (1, 1)
        );
    }

    #[test]
    fn jobs_that_no_worker_requests_here_are_forgotten() {
        let queues = QueueCache::new(Arc::new(LocalPartitions::all(1)));
        let known_after_poll = || {
            queues.apply_rows(&[], &[row(0)]);
            assert_eq!(queues.known_job_count(NAME), 1);
            assert!(queues.mark_unwatched_incomplete().is_empty());
            queues.known_job_count(NAME)
        };
        assert_eq!(known_after_poll(), 0);
        assert!(queues.may_lease_directly(NAME, 0), "a worker asks for it");
        assert_eq!(known_after_poll(), 1);
    }

    #[test]
    fn a_mark_during_a_read_outlives_it() {
        let whole = RefillTarget::whole_queues(&[NAME.to_owned()]);
        assert_eq!(left_after_read(|_| {}), []);
        assert_eq!(left_after_read(QueueCache::mark_all_incomplete), whole);
        let lane = LaneKey {
            limits: "".into(),
            handler: "h".into(),
        };
        let mark_lane = |queues: &QueueCache| {
            let mut by_name = queues.lock();
            let queue = by_name.get_mut(NAME).unwrap();
            queue.mark_lane_incomplete(&lane, Partition(0), &queues.local_partitions);
        };
        let only_lane = RefillTarget {
            queue: NAME.to_owned(),
            lanes: Some(vec![lane.clone()]),
        };
        assert_eq!(left_after_read(mark_lane), [only_lane]);
    }
}
