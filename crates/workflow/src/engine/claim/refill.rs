//! Reads of ready rows: the jobs of queues in the store that are not known here.

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashSet;

use super::{REFILL_ROWS, REFRESH_ROWS};
use crate::codec::{Row, StoreError, lane_rows, queue_rows};
use crate::engine::Engine;
use crate::model::Partition;
use crate::queue::{
    ClaimMode, LaneKey, LanesRead, PartitionRows, PartitionScope, RefillRows, RefillTarget,
};
use crate::store::query::lane_scan::LaneScan;

/// Minimum number of rows that are read of each queue, if a worker claims from many queues.
const MIN_ROWS_PER_QUEUE: usize = 32;
/// Number of rows that are read of each further lane of a long queue: in all partitions, and at
/// least in each partition. Small, because a queue with many lanes keeps no more of each.
const MAX_ROWS_PER_LANE: usize = 32;
const MIN_ROWS_PER_LANE: usize = 2;
/// Maximum number of lanes of a queue in one call to a partition, because other calls of the store
/// wait for it; and of such calls. Later lanes are found when these are known.
pub(crate) const MAX_LANES_PER_CALL: usize = 128;
const MAX_LANE_CALLS: usize = 512;
/// Maximum number of lanes in one call of a background refill. Short calls delay other calls of the
/// store unnoticeably.
const BACKGROUND_LANES_PER_CALL: usize = 16;

/// Rows that a refill reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RefillDepth {
    All,
    /// All rows, with small calls one after the other, because no caller waits for them.
    Background,
    /// Only the first rows of each partition.
    First,
}

/// Result of a refill.
#[derive(Debug, Default)]
struct RefillSummary {
    /// Number of jobs that were not known.
    new_jobs: usize,
    /// Queues with lanes that were not read.
    truncated_queues: Vec<String>,
}

impl Engine {
    /// Reads ready rows of queues that may have more than the known ones. Returns the number of
    /// jobs that were not known.
    pub(crate) async fn refill(&self, queues: &[String]) -> Result<usize, StoreError> {
        let all: Vec<Partition> = self.store().all_partitions().collect();
        self.refill_in(&RefillTarget::whole_queues(queues), &all, REFILL_ROWS)
            .await
    }

    /// Reads at most `most` ready rows of queues in each of these partitions. Returns the number of
    /// jobs that were not known.
    pub(crate) async fn refill_in(
        &self,
        queues: &[RefillTarget],
        wanted: &[Partition],
        most: usize,
    ) -> Result<usize, StoreError> {
        Ok(self
            .read_ready(queues, wanted, most, RefillDepth::All)
            .await?
            .new_jobs)
    }

    /// [`Engine::refill_in`] for a claim. With [`ClaimMode::LongPoll`] it reads only the first rows
    /// of whole queues: a background refill reads the others.
    pub(super) async fn refill_for_claim(
        &self,
        mode: ClaimMode,
        queues: &[RefillTarget],
        wanted: &[Partition],
        most: usize,
    ) -> Result<(), StoreError> {
        let (whole, lanes): (Vec<RefillTarget>, _) = queues
            .iter()
            .cloned()
            .partition(|to_read| to_read.lanes.is_none());
        self.read_ready(&lanes, wanted, most, RefillDepth::All)
            .await?;
        let (most, depth) = match mode {
            ClaimMode::Immediate => (most, RefillDepth::All),
            ClaimMode::LongPoll => (REFRESH_ROWS, RefillDepth::First),
        };
        self.read_ready(&whole, wanted, most, depth).await?;
        Ok(())
    }

    /// Reads the first ready rows of queues in each partition. A background refill reads the others
    /// of queues that have more.
    pub(in crate::engine) async fn refill_first(
        &self,
        names: &[String],
    ) -> Result<usize, StoreError> {
        let queues = RefillTarget::whole_queues(names);
        let all: Vec<Partition> = self.store().all_partitions().collect();
        let found = self
            .read_ready(&queues, &all, REFRESH_ROWS, RefillDepth::First)
            .await?;
        self.refill_in_background(&found.truncated_queues, PartitionScope::All);
        Ok(found.new_jobs)
    }

    /// Reads announced jobs in these partitions. Of whole queues it reads the first rows, and
    /// starts a background refill for the others. Returns the number of jobs that were not known.
    pub(in crate::engine) async fn refill_announced(
        &self,
        queues: Vec<RefillTarget>,
        wanted: &[Partition],
    ) -> Result<usize, StoreError> {
        let (whole, lanes): (Vec<RefillTarget>, Vec<RefillTarget>) = queues
            .into_iter()
            .partition(|to_read| to_read.lanes.is_none());
        let of_lanes = self
            .read_ready(&lanes, wanted, REFRESH_ROWS, RefillDepth::All)
            .await?;
        let first = self
            .read_ready(&whole, wanted, REFRESH_ROWS, RefillDepth::First)
            .await?;
        // The announced jobs may be behind the first rows of longer queues. Shorter queues were
        // read completely.
        self.queues().request_refill(&first.truncated_queues);
        self.refill_in_background(&first.truncated_queues, PartitionScope::All);
        Ok(of_lanes.new_jobs + first.new_jobs)
    }

    /// Starts a background refill of queues that have not been complete for a while. Its small
    /// calls do not delay other calls. The jobs that it finds wake waiting workers.
    pub(super) fn refill_in_background(&self, names: &[String], scope: PartitionScope) {
        let queues = self.queues().overdue(names, scope);
        if !queues.is_empty() {
            let background = BackgroundRefill {
                engine: self.clone(),
                queues,
            };
            self.core.tasks.spawn(async move {
                let all: Vec<Partition> = background.engine.store().all_partitions().collect();
                // After a failure, a later claim reads the rows.
                let _later = background
                    .engine
                    .read_ready(
                        &background.queues,
                        &all,
                        REFRESH_ROWS,
                        RefillDepth::Background,
                    )
                    .await;
            });
        }
    }

    async fn read_ready(
        &self,
        queues: &[RefillTarget],
        wanted: &[Partition],
        most: usize,
        depth: RefillDepth,
    ) -> Result<RefillSummary, StoreError> {
        if queues.is_empty() || wanted.is_empty() {
            return Ok(RefillSummary::default());
        }
        let names: Vec<String> = queues.iter().map(|to_read| to_read.queue.clone()).collect();
        let guard = self.queues().begin_refill(&names);
        let query = RefillQuery::new(queues, most, self.queues().max_skipped_rows(&names));
        let mut found = self.unanswered_rows(queues, wanted);
        self.read_rows(&query, wanted, depth, &mut found).await?;
        let truncated_queues = truncated_queues(&names, &found);
        let refilled = guard.finish(found);
        self.remove_orphan_rows(refilled.stale_rows).await;
        Ok(RefillSummary {
            new_jobs: refilled.new_jobs.len(),
            truncated_queues,
        })
    }

    /// Reads the rows of a query in those of the wanted partitions that are readable.
    async fn read_rows(
        &self,
        query: &RefillQuery<'_>,
        wanted: &[Partition],
        depth: RefillDepth,
        found: &mut [RefillRows],
    ) -> Result<(), StoreError> {
        let (mut partitions, _) = self.readable_partitions();
        partitions.retain(|partition| wanted.contains(partition));
        if partitions.is_empty() {
            return Ok(());
        }
        self.read_first_rows(query, &partitions, found).await?;
        self.read_further_lanes(query, &partitions, depth, found)
            .await
    }

    /// Rows of a read in which no partition answers. Known jobs of these partitions cannot be
    /// claimed, and are read again when the partitions answer.
    fn unanswered_rows(&self, queues: &[RefillTarget], wanted: &[Partition]) -> Vec<RefillRows> {
        let partitions = || {
            (0..self.store().partitions())
                .map(|at| wanted.contains(&Partition(at)).then(PartitionRows::default))
                .collect()
        };
        let skipped = self.queues().blocked_lanes(queues).into_iter();
        skipped
            .map(|skipped| RefillRows {
                partitions: partitions(),
                skipped,
            })
            .collect()
    }

    /// Reads the first rows of each partition.
    async fn read_first_rows(
        &self,
        query: &RefillQuery<'_>,
        partitions: &[Partition],
        found: &mut [RefillRows],
    ) -> Result<(), StoreError> {
        let rows = self
            .store()
            .ready(&query.prefixes, query.limit, partitions)
            .await;
        let (answered, _) = self.split_answers(partitions, rows)?;
        for (partition, rows) in answered {
            for (read, found) in query.rows_by_queue(rows).into_iter().zip(&mut *found) {
                found.partitions[usize::from(partition.0)] = Some(read);
            }
        }
        Ok(())
    }

    /// Reads the lanes behind the first rows, call by call.
    async fn read_further_lanes(
        &self,
        query: &RefillQuery<'_>,
        partitions: &[Partition],
        depth: RefillDepth,
        found: &mut [RefillRows],
    ) -> Result<(), StoreError> {
        let (at_once, lanes, calls) = match depth {
            RefillDepth::All => (partitions.len(), MAX_LANES_PER_CALL, MAX_LANE_CALLS),
            RefillDepth::Background => (
                1,
                BACKGROUND_LANES_PER_CALL,
                MAX_LANE_CALLS * MAX_LANES_PER_CALL / BACKGROUND_LANES_PER_CALL,
            ),
            RefillDepth::First => return Ok(()),
        };
        for partitions in partitions.chunks(at_once) {
            for _ in 0..calls {
                if !self
                    .read_other_lanes(query, partitions, lanes, found)
                    .await?
                {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Reads the next lanes of queues that have more rows than the limit. Returns whether there may
    /// be further lanes.
    async fn read_other_lanes(
        &self,
        query: &RefillQuery<'_>,
        partitions: &[Partition],
        most: usize,
        found: &mut [RefillRows],
    ) -> Result<bool, StoreError> {
        let after = query.last_lanes(partitions, found);
        if after.is_empty() {
            return Ok(false);
        }
        let lane_limit = rows_per_lane(self.store().partitions());
        let wanted = scans_after(&after);
        let read = self.store().lanes(&wanted, lane_limit, most).await;
        let mut more = false;
        for ((partition, positions), lanes) in after.into_iter().zip(read) {
            for ((at, _), (rows, all)) in positions.into_iter().zip(lanes?) {
                more |= !all && !rows.is_empty();
                let RefillRows {
                    partitions,
                    skipped,
                } = &mut found[at];
                if let Some(read) = &mut partitions[usize::from(partition.0)] {
                    read.add_lanes(rows, all, lane_limit, skipped);
                }
            }
        }
        Ok(more)
    }
}

/// Returns the scans of the lanes after these ones, by partition.
fn scans_after(after: &BTreeMap<Partition, Vec<(usize, Row)>>) -> Vec<(Partition, Vec<LaneScan>)> {
    let scan = |(_, lane): &(usize, Row)| LaneScan::rest_of_queue(lane);
    after
        .iter()
        .map(|(at, lanes)| (*at, lanes.iter().map(scan).collect()))
        .collect()
}

/// Maximum number of rows that are read of a further lane in one of `partitions` partitions.
fn rows_per_lane(partitions: u16) -> usize {
    (MAX_ROWS_PER_LANE / usize::from(partitions)).max(MIN_ROWS_PER_LANE)
}

/// Returns the queues that have rows which were not read.
fn truncated_queues(names: &[String], found: &[RefillRows]) -> Vec<String> {
    let is_truncated = |found: &RefillRows| {
        let mut read = found.partitions.iter().flatten();
        read.any(PartitionRows::is_truncated)
    };
    let truncated = names
        .iter()
        .zip(found)
        .filter(|(_, found)| is_truncated(found));
    truncated.map(|(name, _)| name.clone()).collect()
}

/// Queues that a background refill reads. Dropping it lets claims read again what was not found.
struct BackgroundRefill {
    engine: Engine,
    queues: Vec<RefillTarget>,
}

impl Drop for BackgroundRefill {
    fn drop(&mut self) {
        self.engine.queues().end_background_refill(&self.queues);
    }
}

/// Query for the ready rows of some queues, for each partition.
struct RefillQuery<'a> {
    queues: &'a [RefillTarget],
    /// Prefix of the rows of each queue, or of each of its lanes.
    prefixes: Vec<Row>,
    /// Lanes of the prefixes of each queue. `None` if one prefix covers the whole queue.
    lanes: Vec<Option<Arc<[LaneKey]>>>,
    limit: usize,
}

impl<'a> RefillQuery<'a> {
    fn new(queues: &'a [RefillTarget], most: usize, passed_over: usize) -> Self {
        let mut prefixes = Vec::new();
        let mut lanes = Vec::new();
        for RefillTarget { queue, lanes: only } in queues {
            match only {
                None => prefixes.push(queue_rows(queue)),
                Some(only) => prefixes.extend(
                    only.iter()
                        .map(|lane| lane_rows(queue, &lane.handler, &lane.limits)),
                ),
            }
            lanes.push(only.as_ref().map(|only| only.as_slice().into()));
        }
        // Fewer rows of each prefix if there are many, so that the read stays small.
        let limit = (most / prefixes.len().max(1)).max(MIN_ROWS_PER_QUEUE.min(most)) + passed_over;
        Self {
            queues,
            prefixes,
            lanes,
            limit,
        }
    }

    /// Returns the last read lane of each queue that has more rows than the limit, by partition. A
    /// queue is its index in the query.
    fn last_lanes(
        &self,
        partitions: &[Partition],
        found: &[RefillRows],
    ) -> BTreeMap<Partition, Vec<(usize, Row)>> {
        let mut last_lanes: BTreeMap<Partition, Vec<(usize, Row)>> = BTreeMap::new();
        for (at, (target, found)) in self.queues.iter().zip(found).enumerate() {
            for &partition in partitions {
                if let Some(PartitionRows {
                    rows,
                    lanes: LanesRead::UpTo(last),
                    ..
                }) = &found.partitions[usize::from(partition.0)]
                    && rows.len() >= self.limit
                {
                    let lane = lane_rows(&target.queue, &last.handler, &last.limits);
                    last_lanes.entry(partition).or_default().push((at, lane));
                }
            }
        }
        last_lanes
    }

    /// Assigns the rows of one partition to the queues.
    fn rows_by_queue(&self, rows: Vec<Vec<Row>>) -> Vec<PartitionRows> {
        let mut rows = rows.into_iter();
        let read = |lanes: &Option<Arc<[LaneKey]>>| match lanes {
            None => self.whole_queue(rows.next().unwrap_or_default()),
            Some(lanes) => {
                let mut read = PartitionRows {
                    lanes: LanesRead::Only(Arc::clone(lanes)),
                    ..PartitionRows::default()
                };
                for (lane, rows) in lanes.iter().zip(rows.by_ref()) {
                    if rows.len() >= self.limit {
                        read.truncated_lanes.insert(lane.clone());
                    }
                    read.rows.extend(rows);
                }
                read
            }
        };
        self.lanes.iter().map(read).collect()
    }

    fn whole_queue(&self, rows: Vec<Row>) -> PartitionRows {
        let last = rows
            .last()
            .filter(|_| rows.len() >= self.limit)
            .and_then(|row| LaneKey::from_row(row));
        match last {
            None => PartitionRows {
                rows,
                ..PartitionRows::default()
            },
            Some(last) => PartitionRows {
                truncated_lanes: HashSet::from([last.clone()]),
                lanes: LanesRead::UpTo(last),
                rows,
            },
        }
    }
}
