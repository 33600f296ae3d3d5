//! Reads of ready rows: the jobs of queues in the store that are not known here.

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashSet;

use super::{REFILL, REFRESH, remote};
use crate::codec::rows::{ReadyRow, Row, lane_rows, queue_rows};
use crate::engine::Engine;
use crate::engine::queues::ready_jobs::LaneKey;
use crate::engine::queues::refill::{LanesRead, PartitionRows, RefillRows};
use crate::engine::queues::{ClaimMode, PartitionScope, RefillTarget};
use crate::id::Partition;
use crate::store::error::StoreError;
use crate::store::lane_scan::LaneScan;

/// Minimum number of rows that are read of each queue, if a worker claims from many queues.
const LEAST: usize = 32;
/// Number of rows that are read of each further lane of a long queue: in all partitions, and at
/// least in each partition. Small, because a queue with many lanes keeps no more of each.
const EACH_LANE: usize = 32;
const EACH_LANE_OF_ONE: usize = 2;
/// Maximum number of lanes of a queue in one call to a partition, because other calls of the store
/// wait for it; and of such calls. Later lanes are found when these are known.
pub(crate) const LANES: usize = 128;
const CALLS: usize = 512;
/// Maximum number of lanes in one call of a background refill. Short calls delay other calls of the
/// store unnoticeably.
const LANES_BESIDE: usize = 16;

/// Rows that a refill reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RefillDepth {
    All,
    /// All rows, with small calls one after the other, because no caller waits for them.
    Background,
    /// Only the first rows of each partition.
    First,
    /// The rows behind the first ones of each partition.
    PastBacklog,
}

/// Result of a refill.
#[derive(Debug, Default)]
struct RefillSummary {
    /// Number of jobs that were not known.
    new: usize,
    /// Number of rows that were left to their assigned servers.
    left: usize,
    /// Queues with lanes that were not read.
    cut: Vec<String>,
}

impl Engine {
    /// Reads ready rows of queues that may have more than the known ones. Returns the number of
    /// jobs that were not known.
    pub(crate) async fn refill(&self, queues: &[String]) -> Result<usize, StoreError> {
        let queues: Vec<RefillTarget> = queues.iter().cloned().map(RefillTarget::from).collect();
        self.refill_up_to(&queues, REFILL).await
    }

    pub(super) async fn refill_up_to(
        &self,
        queues: &[RefillTarget],
        most: usize,
    ) -> Result<usize, StoreError> {
        self.refill_in(
            queues,
            &self.store().all_partitions().collect::<Vec<_>>(),
            most,
        )
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
            .new)
    }

    /// [`Engine::refill_in`] for a claim. With [`ClaimMode::LongPoll`] it reads only the first rows
    /// of whole queues: a background refill reads the others.
    pub(super) async fn refill_with(
        &self,
        patience: ClaimMode,
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
        match patience {
            ClaimMode::Immediate => {
                self.read_ready(&whole, wanted, most, RefillDepth::All)
                    .await?
            }
            ClaimMode::LongPoll => {
                self.read_ready(&whole, wanted, REFRESH, RefillDepth::First)
                    .await?
            }
        };
        Ok(())
    }

    /// Reads the first ready rows of queues in each partition. A background refill reads the others
    /// of queues that have more.
    pub(in crate::engine) async fn refill_first(
        &self,
        names: Vec<String>,
    ) -> Result<usize, StoreError> {
        let queues: Vec<RefillTarget> = names.iter().cloned().map(RefillTarget::from).collect();
        let all: Vec<Partition> = self.store().all_partitions().collect();
        let found = self
            .read_ready(&queues, &all, REFRESH, RefillDepth::First)
            .await?;
        self.refill_beside(&found.cut, PartitionScope::All);
        Ok(found.new)
    }

    /// Reads announced jobs in these partitions. Of whole queues it reads the first rows, and
    /// starts a background refill for the others. Returns the number of jobs that were not known.
    pub(in crate::engine) async fn refill_news(
        &self,
        queues: Vec<RefillTarget>,
        wanted: &[Partition],
    ) -> Result<usize, StoreError> {
        let (whole, lanes): (Vec<RefillTarget>, Vec<RefillTarget>) = queues
            .into_iter()
            .partition(|to_read| to_read.lanes.is_none());
        let of_lanes = self
            .read_ready(&lanes, wanted, REFRESH, RefillDepth::All)
            .await?;
        let first = self
            .read_ready(&whole, wanted, REFRESH, RefillDepth::First)
            .await?;
        // The announced jobs may be behind the first rows of longer queues. Shorter queues were
        // read completely.
        self.queues().look_again(&first.cut);
        self.refill_beside(&first.cut, PartitionScope::All);
        Ok(of_lanes.new + first.new)
    }

    /// Starts a background refill of queues that have not been complete for a while. Its small
    /// calls do not delay other calls. The jobs that it finds wake waiting workers.
    pub(super) fn refill_beside(&self, names: &[String], place: PartitionScope) {
        let queues = self.queues().overdue(names, place);
        if !queues.is_empty() {
            let beside = BackgroundRefill {
                engine: self.clone(),
                queues,
            };
            self.core.tasks.spawn(async move {
                let all: Vec<Partition> = beside.engine.store().all_partitions().collect();
                // After a failure, a later claim reads the rows.
                let _later = beside
                    .engine
                    .read_ready(&beside.queues, &all, REFRESH, RefillDepth::Background)
                    .await;
            });
        }
    }

    /// [`Engine::refill_in`] without the first rows of each partition, which are left to their
    /// assigned servers. Returns the number of rows that were left.
    pub(super) async fn refill_beyond(
        &self,
        queues: &[RefillTarget],
        wanted: &[Partition],
        most: usize,
    ) -> Result<usize, StoreError> {
        Ok(self
            .read_ready(queues, wanted, most, RefillDepth::PastBacklog)
            .await?
            .left)
    }

    async fn read_ready(
        &self,
        queues: &[RefillTarget],
        wanted: &[Partition],
        most: usize,
        reads: RefillDepth,
    ) -> Result<RefillSummary, StoreError> {
        if queues.is_empty() || wanted.is_empty() {
            return Ok(RefillSummary::default());
        }
        let names: Vec<String> = queues.iter().map(|to_read| to_read.queue.clone()).collect();
        let reading = self.queues().read(&names);
        let asked = RefillQuery::of(queues, most, self.queues().passed_over(&names));
        let (mut partitions, _) = self.readable();
        partitions.retain(|partition| wanted.contains(partition));
        let mut found = self.nothing_found(queues, wanted);
        let mut left = 0;
        if !partitions.is_empty() {
            left = self
                .read_first_rows(&asked, &partitions, reads, &mut found)
                .await?;
            self.read_further_lanes(&asked, &partitions, reads, &mut found)
                .await?;
        }
        let is_cut =
            |found: &RefillRows| found.partitions.iter().flatten().any(PartitionRows::is_cut);
        let cut = names
            .iter()
            .zip(&found)
            .filter(|(_, found)| is_cut(found))
            .map(|(name, _)| name.clone())
            .collect();
        let refilled = reading.finish(found);
        self.bury_rows(refilled.stale).await;
        Ok(RefillSummary {
            new: refilled.new.len(),
            left,
            cut,
        })
    }

    /// Rows of a read in which no partition answers. Known jobs of these partitions cannot be
    /// claimed, and are read again when the partitions answer.
    fn nothing_found(&self, queues: &[RefillTarget], wanted: &[Partition]) -> Vec<RefillRows> {
        let partitions = || {
            (0..self.store().partitions())
                .map(|at| wanted.contains(&Partition(at)).then(PartitionRows::default))
                .collect()
        };
        let skipped = self.queues().closed_lanes(queues).into_iter();
        skipped
            .map(|skipped| RefillRows {
                partitions: partitions(),
                skipped,
            })
            .collect()
    }

    /// Reads the first rows of each partition. Returns how many of them are left to their assigned
    /// servers.
    async fn read_first_rows(
        &self,
        asked: &RefillQuery<'_>,
        partitions: &[Partition],
        reads: RefillDepth,
        found: &mut [RefillRows],
    ) -> Result<usize, StoreError> {
        let rows = self
            .store()
            .ready(&asked.prefixes, asked.limit, partitions)
            .await;
        let (answered, _) = self.answered(partitions, rows)?;
        let mut left = 0;
        for (partition, rows) in answered {
            for (mut read, found) in asked.reads(rows).into_iter().zip(&mut *found) {
                if reads == RefillDepth::PastBacklog {
                    left += leave_first(&mut read);
                }
                found.partitions[usize::from(partition.0)] = Some(read);
            }
        }
        Ok(left)
    }

    /// Reads the lanes behind the first rows, call by call.
    async fn read_further_lanes(
        &self,
        asked: &RefillQuery<'_>,
        partitions: &[Partition],
        reads: RefillDepth,
        found: &mut [RefillRows],
    ) -> Result<(), StoreError> {
        let (at_once, lanes, calls) = match reads {
            RefillDepth::All => (partitions.len(), LANES, CALLS),
            RefillDepth::Background => (1, LANES_BESIDE, CALLS * LANES / LANES_BESIDE),
            RefillDepth::First | RefillDepth::PastBacklog => return Ok(()),
        };
        for partitions in partitions.chunks(at_once) {
            for _ in 0..calls {
                if !self
                    .read_other_lanes(asked, partitions, lanes, found)
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
        asked: &RefillQuery<'_>,
        partitions: &[Partition],
        most: usize,
        found: &mut [RefillRows],
    ) -> Result<bool, StoreError> {
        let mut after: BTreeMap<Partition, Vec<(usize, Row)>> = BTreeMap::new();
        for (at, (to_read, found)) in asked.queues.iter().zip(&*found).enumerate() {
            for (partition, read) in (0..).map(Partition).zip(&found.partitions) {
                if let Some(PartitionRows {
                    rows,
                    lanes: LanesRead::UpTo(last),
                    ..
                }) = read
                    && rows.len() >= asked.limit
                    && partitions.contains(&partition)
                {
                    after
                        .entry(partition)
                        .or_default()
                        .push((at, lane_rows(&to_read.queue, &last.handler, &last.limits)));
                }
            }
        }
        if after.is_empty() {
            return Ok(false);
        }
        let each = (EACH_LANE / usize::from(self.store().partitions())).max(EACH_LANE_OF_ONE);
        let wanted: Vec<(Partition, Vec<LaneScan>)> = after
            .iter()
            .map(|(at, lanes)| {
                (
                    *at,
                    lanes
                        .iter()
                        .map(|(_, lane)| LaneScan::behind(lane))
                        .collect(),
                )
            })
            .collect();
        let read = self.store().lanes(&wanted, each, most).await;
        let mut more = false;
        for ((partition, places), lanes) in after.into_iter().zip(read) {
            for ((at, _), (rows, all)) in places.into_iter().zip(lanes?) {
                more |= !all && !rows.is_empty();
                let RefillRows {
                    partitions,
                    skipped,
                } = &mut found[at];
                if let Some(read) = &mut partitions[usize::from(partition.0)] {
                    read.add_lanes(rows, all, each, skipped);
                }
            }
        }
        Ok(more)
    }
}

/// Queues that a background refill reads. Dropping it lets claims read again what was not found.
struct BackgroundRefill {
    engine: Engine,
    queues: Vec<RefillTarget>,
}

impl Drop for BackgroundRefill {
    fn drop(&mut self) {
        self.engine.queues().end_beside(&self.queues);
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
    fn of(queues: &'a [RefillTarget], most: usize, passed_over: usize) -> Self {
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
        let limit = (most / prefixes.len().max(1)).max(LEAST.min(most)) + passed_over;
        Self {
            queues,
            prefixes,
            lanes,
            limit,
        }
    }

    /// Assigns the rows of one partition to the queues.
    fn reads(&self, rows: Vec<Vec<Row>>) -> Vec<PartitionRows> {
        let mut rows = rows.into_iter();
        let read = |lanes: &Option<Arc<[LaneKey]>>| match lanes {
            None => self.whole(rows.next().unwrap_or_default()),
            Some(lanes) => {
                let mut read = PartitionRows {
                    lanes: LanesRead::Only(Arc::clone(lanes)),
                    ..PartitionRows::default()
                };
                for (lane, rows) in lanes.iter().zip(rows.by_ref()) {
                    if rows.len() >= self.limit {
                        read.more.insert(lane.clone());
                    }
                    read.rows.extend(rows);
                }
                read
            }
        };
        self.lanes.iter().map(read).collect()
    }

    fn whole(&self, rows: Vec<Row>) -> PartitionRows {
        let last = rows
            .last()
            .filter(|_| rows.len() >= self.limit)
            .and_then(|row| lane_of(row));
        match last {
            None => PartitionRows {
                rows,
                ..PartitionRows::default()
            },
            Some(last) => PartitionRows {
                more: HashSet::from([last.clone()]),
                lanes: LanesRead::UpTo(last),
                rows,
            },
        }
    }
}

impl PartitionRows {
    /// Adds rows of lanes behind the covered ones, at most `each` of a lane. `all` says whether
    /// these are all lanes. Rows of skipped lanes are left out.
    fn add_lanes(&mut self, rows: Vec<Row>, all: bool, each: usize, skipped: &HashSet<LaneKey>) {
        let mut last: Option<(LaneKey, usize)> = None;
        for row in rows {
            let Some(lane) = lane_of(&row) else { continue };
            let number = match &last {
                Some((same, number)) if *same == lane => number + 1,
                _ => 1,
            };
            if !skipped.contains(&lane) {
                if number >= each {
                    self.more.insert(lane.clone());
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
}

/// Leaves the first rows of a read to the server of their partition. Returns their number.
fn leave_first(read: &mut PartitionRows) -> usize {
    let more = read.rows.iter().filter_map(|row| lane_of(row)).collect();
    let (rows, left) = remote::beyond(std::mem::take(&mut read.rows));
    *read = PartitionRows {
        rows,
        lanes: LanesRead::Some,
        more,
    };
    left
}

fn lane_of(row: &[u8]) -> Option<LaneKey> {
    let row = ReadyRow::read(row)?;
    Some(LaneKey {
        limits: row.limit_key.into(),
        handler: row.handler.into(),
    })
}
