//! Reads of ready rows: what queues have in the store beside what is known of them here.

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

/// How many of each queue, when a worker asks for many queues.
const LEAST: usize = 32;
/// How many of each lane of a queue that has more rows than were read, of all partitions together, and of one at least: of many lanes not
/// more are remembered.
const EACH_LANE: usize = 32;
const EACH_LANE_OF_ONE: usize = 2;
/// The most lanes of a queue that are read from a partition with one call: others that ask the store wait for it. The most such calls; lanes
/// behind these are found when these are known.
pub(crate) const LANES: usize = 128;
const CALLS: usize = 512;
/// The most lanes of one call when nobody waits for the answer: so short is no other kept waiting that it is noticed.
const LANES_BESIDE: usize = 16;

/// Which ready rows are read, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RefillDepth {
    All,
    /// The same, in small pieces one after the other: nobody waits for them.
    Background,
    /// The first of each partition alone.
    First,
    /// Without the first of each partition.
    PastBacklog,
}

/// What a read found.
#[derive(Debug, Default)]
struct RefillSummary {
    /// How many jobs were not known.
    new: usize,
    /// How many rows were left to their homes.
    left: usize,
    /// Queues that have lanes which were not looked at.
    cut: Vec<String>,
}

impl Engine {
    /// Reads ready rows of queues whose rows may not all be in memory. Returns how many jobs were not known.
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

    /// Reads ready rows of queues, at most so many of each of these partitions. Returns how many jobs were not known.
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

    /// [`Engine::refill_in`] for a claim. One that is patient reads only the first rows of a queue: the others are read beside it.
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

    /// Reads the first ready rows of queues in each partition. The others of queues that have more are read beside it.
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

    /// Reads in these partitions what may have become ready elsewhere: of whole queues the first rows, and then the others beside it. Returns how
    /// many jobs were not known.
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
        // What became ready may be behind the first rows of those that have more. Of the others all is known there.
        self.queues().look_again(&first.cut);
        self.refill_beside(&first.cut, PartitionScope::All);
        Ok(of_lanes.new + first.new)
    }

    /// Reads those of these queues of which nobody has known all for a while, in small pieces, so that those who want something else are not
    /// kept waiting. What is found wakes those who wait.
    pub(super) fn refill_beside(&self, names: &[String], place: PartitionScope) {
        let queues = self.queues().overdue(names, place);
        if !queues.is_empty() {
            let beside = BackgroundRefill {
                engine: self.clone(),
                queues,
            };
            self.core.tasks.spawn(async move {
                let all: Vec<Partition> = beside.engine.store().all_partitions().collect();
                // What cannot be read now is read by a claim later.
                let _later = beside
                    .engine
                    .read_ready(&beside.queues, &all, REFRESH, RefillDepth::Background)
                    .await;
            });
        }
    }

    /// The same without the first rows of each partition. Returns how many of these there are.
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

    /// The result of a read in which no partition answers. What is remembered of these partitions cannot be claimed, and is read again
    /// when they do.
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

    /// Reads the first rows of each partition. Returns how many of them are left to their homes.
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

    /// Reads the lanes that come after the last row where a queue has more rows than were asked for. Returns whether there may be more.
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

/// Queues that are read beside the claims. When this is dropped, whoever left them to it reads again what was not found.
struct BackgroundRefill {
    engine: Engine,
    queues: Vec<RefillTarget>,
}

impl Drop for BackgroundRefill {
    fn drop(&mut self) {
        self.engine.queues().end_beside(&self.queues);
    }
}

/// What is asked of each partition.
struct RefillQuery<'a> {
    queues: &'a [RefillTarget],
    /// Of each queue, or of each of its lanes.
    prefixes: Vec<Row>,
    /// How many prefixes each queue has, and which lanes they are of.
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
        // Fewer rows of each when there are many: the read stays small.
        let limit = (most / prefixes.len().max(1)).max(LEAST.min(most)) + passed_over;
        Self {
            queues,
            prefixes,
            lanes,
            limit,
        }
    }

    /// What was found of each queue in one partition.
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
    /// Rows of lanes that come after those that were read, at most so many of each, and whether these are all lanes. Those of the lanes that are
    /// skipped are left out.
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

/// Leaves the first rows of a read to the home of their partition. Returns how many these are.
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
