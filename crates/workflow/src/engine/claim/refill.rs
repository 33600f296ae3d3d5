//! Reads of ready rows: the jobs of queues in the store that are not known here.

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashSet;

use super::REFRESH_ROWS;
use crate::codec::{Row, StoreError, lane_rows, queue_rows};
use crate::engine::Engine;
use crate::model::Partition;
use crate::queue::{
    LaneKey, LanesRead, PartitionRows, PartitionScope, RefillDepth, RefillResult, RefillRows,
    RefillTarget,
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

impl Engine {
    /// Reads at most `row_limit` ready rows of queues in each of these partitions, and then, unless
    /// `depth` is [`RefillDepth::First`], the first rows of each further lane.
    pub(in crate::engine) async fn refill(
        &self,
        targets: &[RefillTarget],
        partitions: &[Partition],
        row_limit: usize,
        depth: RefillDepth,
    ) -> Result<RefillResult, StoreError> {
        if targets.is_empty() || partitions.is_empty() {
            return Ok(RefillResult::default());
        }
        let names: Vec<String> = targets.iter().map(|target| target.queue.clone()).collect();
        let guard = self.queues().begin_refill(&names);
        let query = RefillQuery::new(targets, row_limit, self.queues().max_skipped_rows(&names));
        let mut found = self.unanswered_rows(targets, partitions);
        self.read_rows(&query, partitions, depth, &mut found)
            .await?;
        let mut refilled = guard.finish(found);
        self.remove_orphan_rows(std::mem::take(&mut refilled.stale_rows))
            .await;
        Ok(refilled)
    }

    /// Reads the first ready rows of queues. A background refill reads the others of queues that
    /// have more. Returns the number of jobs that were not known.
    pub(in crate::engine) async fn refill_first(
        &self,
        names: &[String],
    ) -> Result<usize, StoreError> {
        let targets = RefillTarget::whole_queues(names);
        let all: Vec<Partition> = self.store().all_partitions().collect();
        let refilled = self
            .refill(&targets, &all, REFRESH_ROWS, RefillDepth::First)
            .await?;
        self.refill_in_background(&refilled.truncated_queues, PartitionScope::All);
        Ok(refilled.new_jobs.len())
    }

    /// Reads queues that workers wait for and that were resumed, or of which a claim failed. If the
    /// read fails, the next sweep repeats it.
    pub(in crate::engine) async fn run_required_refills(&self) {
        let _later = self.refill_first(&self.queues().required_refills()).await;
    }

    /// Reads announced jobs in these partitions. Returns the number of jobs that were not known.
    pub(in crate::engine) async fn refill_announced(
        &self,
        targets: &[RefillTarget],
        partitions: &[Partition],
    ) -> Result<usize, StoreError> {
        let refilled = self
            .refill(targets, partitions, REFRESH_ROWS, RefillDepth::First)
            .await?;
        // The announced jobs may be behind the first rows of longer queues. Shorter queues were
        // read completely.
        self.queues().mark_overdue(&refilled.truncated_queues);
        self.refill_in_background(&refilled.truncated_queues, PartitionScope::All);
        Ok(refilled.new_jobs.len())
    }

    /// Starts a background refill of queues that have not been complete for a while. Its small
    /// calls do not delay other calls. The jobs that it finds wake waiting workers.
    pub(super) fn refill_in_background(&self, names: &[String], scope: PartitionScope) {
        let targets = self.queues().overdue(names, scope);
        if targets.is_empty() {
            return;
        }
        let background = BackgroundRefill {
            engine: self.clone(),
            targets,
        };
        self.core.tasks.spawn(async move {
            let BackgroundRefill { engine, targets } = &background;
            let all: Vec<Partition> = engine.store().all_partitions().collect();
            // After a failure, a later claim reads the rows.
            let _later = engine
                .refill(targets, &all, REFRESH_ROWS, RefillDepth::Background)
                .await;
        });
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

    /// The result of a read to which no partition has answered: no rows. Known jobs of partitions
    /// that do not answer are forgotten, because they cannot be claimed; later reads find them.
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

/// Queues that a background refill reads. Dropping it lets claims read again what was not found.
struct BackgroundRefill {
    engine: Engine,
    targets: Vec<RefillTarget>,
}

impl Drop for BackgroundRefill {
    fn drop(&mut self) {
        self.engine.queues().end_background_refill(&self.targets);
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
    fn new(queues: &'a [RefillTarget], most: usize, skipped_rows: usize) -> Self {
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
        let limit = (most / prefixes.len().max(1)).max(MIN_ROWS_PER_QUEUE.min(most)) + skipped_rows;
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
        if rows.len() < self.limit {
            return PartitionRows {
                rows,
                ..PartitionRows::default()
            };
        }
        // Rows that cannot be read are of no lane.
        match rows.iter().rev().find_map(|row| LaneKey::from_row(row)) {
            None => PartitionRows {
                lanes: LanesRead::Only(Arc::new([])),
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
