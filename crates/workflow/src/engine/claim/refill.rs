//! Reads of ready rows: what queues have in the store beside what is known of them here.

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashSet;

use super::{REFILL, REFRESH, elsewhere};
use crate::engine::Engine;
use crate::engine::queues::lanes::LaneKey;
use crate::engine::queues::reading::{Found, Looked, Read};
use crate::engine::queues::{Patience, ToRead, Where};
use crate::id::Partition;
use crate::record::rows::{ReadyRow, Row, lane_rows, queue_rows};
use crate::store::error::StoreError;
use crate::store::lanes::Walk;

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
enum Reads {
    All,
    /// The same, in small pieces one after the other: nobody waits for them.
    Beside,
    /// The first of each partition alone.
    First,
    /// Without the first of each partition.
    Beyond,
}

/// What a read found.
#[derive(Debug, Default)]
struct Done {
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
        let queues: Vec<ToRead> = queues.iter().cloned().map(ToRead::from).collect();
        self.refill_up_to(&queues, REFILL).await
    }

    pub(super) async fn refill_up_to(
        &self,
        queues: &[ToRead],
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
        queues: &[ToRead],
        wanted: &[Partition],
        most: usize,
    ) -> Result<usize, StoreError> {
        Ok(self.read_ready(queues, wanted, most, Reads::All).await?.new)
    }

    /// [`Engine::refill_in`] for a claim. One that is patient reads only the first rows of a queue: the others are read beside it.
    pub(super) async fn refill_with(
        &self,
        patience: Patience,
        queues: &[ToRead],
        wanted: &[Partition],
        most: usize,
    ) -> Result<(), StoreError> {
        let (whole, lanes): (Vec<ToRead>, _) = queues
            .iter()
            .cloned()
            .partition(|to_read| to_read.lanes.is_none());
        self.read_ready(&lanes, wanted, most, Reads::All).await?;
        match patience {
            Patience::None => self.read_ready(&whole, wanted, most, Reads::All).await?,
            Patience::Some => {
                self.read_ready(&whole, wanted, REFRESH, Reads::First)
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
        let queues: Vec<ToRead> = names.iter().cloned().map(ToRead::from).collect();
        let all: Vec<Partition> = self.store().all_partitions().collect();
        let found = self
            .read_ready(&queues, &all, REFRESH, Reads::First)
            .await?;
        self.refill_beside(&found.cut, Where::Anywhere);
        Ok(found.new)
    }

    /// Reads in these partitions what may have become ready elsewhere: of whole queues the first rows, and then the others beside it. Returns how
    /// many jobs were not known.
    pub(in crate::engine) async fn refill_news(
        &self,
        queues: Vec<ToRead>,
        wanted: &[Partition],
    ) -> Result<usize, StoreError> {
        let (whole, lanes): (Vec<ToRead>, Vec<ToRead>) = queues
            .into_iter()
            .partition(|to_read| to_read.lanes.is_none());
        let of_lanes = self.read_ready(&lanes, wanted, REFRESH, Reads::All).await?;
        let first = self
            .read_ready(&whole, wanted, REFRESH, Reads::First)
            .await?;
        // What became ready may be behind the first rows of those that have more. Of the others all is known there.
        self.queues().look_again(&first.cut);
        self.refill_beside(&first.cut, Where::Anywhere);
        Ok(of_lanes.new + first.new)
    }

    /// Reads those of these queues of which nobody has known all for a while, in small pieces, so that those who want something else are not
    /// kept waiting. What is found wakes those who wait.
    pub(super) fn refill_beside(&self, names: &[String], place: Where) {
        let queues = self.queues().overdue(names, place);
        if !queues.is_empty() {
            let beside = Beside {
                engine: self.clone(),
                queues,
            };
            self.core.tasks.spawn(async move {
                let all: Vec<Partition> = beside.engine.store().all_partitions().collect();
                // What cannot be read now is read by a claim later.
                let _later = beside
                    .engine
                    .read_ready(&beside.queues, &all, REFRESH, Reads::Beside)
                    .await;
            });
        }
    }

    /// The same without the first rows of each partition. Returns how many of these there are.
    pub(super) async fn refill_beyond(
        &self,
        queues: &[ToRead],
        wanted: &[Partition],
        most: usize,
    ) -> Result<usize, StoreError> {
        Ok(self
            .read_ready(queues, wanted, most, Reads::Beyond)
            .await?
            .left)
    }

    async fn read_ready(
        &self,
        queues: &[ToRead],
        wanted: &[Partition],
        most: usize,
        reads: Reads,
    ) -> Result<Done, StoreError> {
        if queues.is_empty() || wanted.is_empty() {
            return Ok(Done::default());
        }
        let names: Vec<String> = queues.iter().map(|to_read| to_read.queue.clone()).collect();
        let reading = self.queues().read(&names);
        let asked = Asked::of(queues, most, self.queues().passed_over(&names));
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
        let is_cut = |found: &Found| found.partitions.iter().flatten().any(Read::is_cut);
        let cut = names
            .iter()
            .zip(&found)
            .filter(|(_, found)| is_cut(found))
            .map(|(name, _)| name.clone())
            .collect();
        let refilled = reading.finish(found);
        self.bury_rows(refilled.stale).await;
        Ok(Done {
            new: refilled.new.len(),
            left,
            cut,
        })
    }

    /// The result of a read in which no partition answers. What is remembered of these partitions cannot be claimed, and is read again
    /// when they do.
    fn nothing_found(&self, queues: &[ToRead], wanted: &[Partition]) -> Vec<Found> {
        let partitions = || {
            (0..self.store().partitions())
                .map(|at| wanted.contains(&Partition(at)).then(Read::default))
                .collect()
        };
        let skipped = self.queues().closed_lanes(queues).into_iter();
        skipped
            .map(|skipped| Found {
                partitions: partitions(),
                skipped,
            })
            .collect()
    }

    /// Reads the first rows of each partition. Returns how many of them are left to their homes.
    async fn read_first_rows(
        &self,
        asked: &Asked<'_>,
        partitions: &[Partition],
        reads: Reads,
        found: &mut [Found],
    ) -> Result<usize, StoreError> {
        let rows = self
            .store()
            .ready(&asked.prefixes, asked.limit, partitions)
            .await;
        let (answered, _) = self.answered(partitions, rows)?;
        let mut left = 0;
        for (partition, rows) in answered {
            for (mut read, found) in asked.reads(rows).into_iter().zip(&mut *found) {
                if reads == Reads::Beyond {
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
        asked: &Asked<'_>,
        partitions: &[Partition],
        reads: Reads,
        found: &mut [Found],
    ) -> Result<(), StoreError> {
        let (at_once, lanes, calls) = match reads {
            Reads::All => (partitions.len(), LANES, CALLS),
            Reads::Beside => (1, LANES_BESIDE, CALLS * LANES / LANES_BESIDE),
            Reads::First | Reads::Beyond => return Ok(()),
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
        asked: &Asked<'_>,
        partitions: &[Partition],
        most: usize,
        found: &mut [Found],
    ) -> Result<bool, StoreError> {
        let mut after: BTreeMap<Partition, Vec<(usize, Row)>> = BTreeMap::new();
        for (at, (to_read, found)) in asked.queues.iter().zip(&*found).enumerate() {
            for (partition, read) in (0..).map(Partition).zip(&found.partitions) {
                if let Some(Read {
                    rows,
                    lanes: Looked::UpTo(last),
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
        let wanted: Vec<(Partition, Vec<Walk>)> = after
            .iter()
            .map(|(at, lanes)| {
                (
                    *at,
                    lanes.iter().map(|(_, lane)| Walk::behind(lane)).collect(),
                )
            })
            .collect();
        let read = self.store().lanes(&wanted, each, most).await;
        let mut more = false;
        for ((partition, places), lanes) in after.into_iter().zip(read) {
            for ((at, _), (rows, all)) in places.into_iter().zip(lanes?) {
                more |= !all && !rows.is_empty();
                let Found {
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
struct Beside {
    engine: Engine,
    queues: Vec<ToRead>,
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.engine.queues().end_beside(&self.queues);
    }
}

/// What is asked of each partition.
struct Asked<'a> {
    queues: &'a [ToRead],
    /// Of each queue, or of each of its lanes.
    prefixes: Vec<Row>,
    /// How many prefixes each queue has, and which lanes they are of.
    lanes: Vec<Option<Arc<[LaneKey]>>>,
    limit: usize,
}

impl<'a> Asked<'a> {
    fn of(queues: &'a [ToRead], most: usize, passed_over: usize) -> Self {
        let mut prefixes = Vec::new();
        let mut lanes = Vec::new();
        for ToRead { queue, lanes: only } in queues {
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
    fn reads(&self, rows: Vec<Vec<Row>>) -> Vec<Read> {
        let mut rows = rows.into_iter();
        let read = |lanes: &Option<Arc<[LaneKey]>>| match lanes {
            None => self.whole(rows.next().unwrap_or_default()),
            Some(lanes) => {
                let mut read = Read {
                    lanes: Looked::Only(Arc::clone(lanes)),
                    ..Read::default()
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

    fn whole(&self, rows: Vec<Row>) -> Read {
        let last = rows
            .last()
            .filter(|_| rows.len() >= self.limit)
            .and_then(|row| lane_of(row));
        match last {
            None => Read {
                rows,
                ..Read::default()
            },
            Some(last) => Read {
                more: HashSet::from([last.clone()]),
                lanes: Looked::UpTo(last),
                rows,
            },
        }
    }
}

impl Read {
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
            _ if all => Looked::All,
            Some((last, _)) => Looked::UpTo(last),
            None => std::mem::take(&mut self.lanes),
        };
    }
}

/// Leaves the first rows of a read to the home of their partition. Returns how many these are.
fn leave_first(read: &mut Read) -> usize {
    let more = read.rows.iter().filter_map(|row| lane_of(row)).collect();
    let (rows, left) = elsewhere::beyond(std::mem::take(&mut read.rows));
    *read = Read {
        rows,
        lanes: Looked::Some,
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
