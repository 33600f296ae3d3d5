//! Limit keys with waiting jobs, for people. The limit key of a job stands for all of its limits.

use crate::codec::rows::{ReadyJob, ReadyRow, Row, lane_of};
use crate::engine::Engine;
use crate::engine::error::EngineError;
use crate::engine::limits::status::Look;
use crate::engine::partial::{Missing, Partial};
use crate::graph::limits::Limits;
use crate::id::Partition;
use crate::store::lane_scan::LaneScan;
use crate::time::Timestamp;

/// Maximum reads of each partition for one page, when most lanes are of jobs without limits.
const ROUNDS: usize = 10;
/// Maximum holders of a concurrency limit that are listed.
const TOLD: usize = 10;

/// Ready jobs of a queue and a handler with the same limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingKey {
    /// The queue of the jobs.
    pub queue: String,
    /// The handler of the jobs.
    pub handler: String,
    /// The limits of the jobs.
    pub limits: Limits,
    /// Number of the jobs.
    pub waiting: u64,
    /// The time at which the oldest became ready. Only the most urgent job of each partition is
    /// considered.
    pub oldest: Option<Timestamp>,
    /// The state of the limits.
    pub look: Look,
}

/// A page of limit keys by queue and handler.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WaitingKeyPage {
    /// The keys: fewer than the limit if there are too many lanes without limits between them.
    pub keys: Vec<WaitingKey>,
    /// The start of the next page. `None` if this is the last page.
    pub next: Option<Vec<u8>>,
}

/// Lanes with limits that a read of some partitions returned.
struct Lanes {
    /// Prefixes of the lanes, sorted, without duplicates.
    limited: Vec<Row>,
    /// The last lane up to which the read is complete. `None` if it is complete.
    seen: Option<Row>,
}

impl Engine {
    /// At most `limit` keys of a queue or of all queues, after the key `after`. The cost does not
    /// depend on the number of waiting jobs.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn waiting_keys(
        &self,
        queue: Option<&str>,
        after: Option<&[u8]>,
        limit: usize,
        now: Timestamp,
    ) -> Result<Partial<WaitingKeyPage>, EngineError> {
        let (partitions, mut missing) = self.readable();
        let mut from = after.map(<[u8]>::to_vec);
        let mut lanes = Vec::new();
        for _ in 0..ROUNDS {
            let walk = queue.map_or_else(LaneScan::of_all, LaneScan::of_queue);
            let walk = from.iter().fold(walk, |walk, lane| walk.after(lane));
            let found = self
                .limited_lanes(&walk, limit + 1 - lanes.len(), &partitions, &mut missing)
                .await?;
            lanes.extend(found.limited);
            from = found.seen;
            if from.is_none() || lanes.len() > limit {
                break;
            }
        }
        if lanes.len() > limit {
            lanes.truncate(limit);
            from = lanes.last().cloned();
        }
        let keys = self.keys_of(&lanes, &partitions, &mut missing, now).await?;
        Ok(Partial {
            found: WaitingKeyPage { keys, next: from },
            missing,
        })
    }

    async fn limited_lanes(
        &self,
        walk: &LaneScan,
        number: usize,
        partitions: &[Partition],
        missing: &mut Missing,
    ) -> Result<Lanes, EngineError> {
        let wanted: Vec<(Partition, Vec<LaneScan>)> = partitions
            .iter()
            .map(|at| (*at, vec![walk.clone()]))
            .collect();
        let read = self.store().lanes(&wanted, 1, number).await;
        let (read, others) = self.answered(partitions, read)?;
        missing.add(others);
        // After the last lane of a partition that has more, lanes may be missing.
        let last = |(rows, all): &(Vec<Row>, bool)| {
            rows.last()
                .filter(|_| !all)
                .map(|row| lane_of(row).to_vec())
        };
        let walks = || read.iter().flat_map(|(_, walks)| walks);
        let seen = walks().filter_map(last).min();
        let known = |lane: &Row| seen.as_ref().is_none_or(|seen| lane <= seen);
        let mut limited: Vec<Row> = walks()
            .flat_map(|(rows, _)| rows)
            .filter(|row| ReadyRow::read(row).is_some_and(|row| !row.limit_key.is_empty()))
            .map(|row| lane_of(row).to_vec())
            .filter(known)
            .collect();
        limited.sort_unstable();
        limited.dedup();
        Ok(Lanes { limited, seen })
    }

    async fn keys_of(
        &self,
        lanes: &[Row],
        partitions: &[Partition],
        missing: &mut Missing,
        now: Timestamp,
    ) -> Result<Vec<WaitingKey>, EngineError> {
        let depths = self.store().ready_depth(lanes, partitions).await;
        let (depths, others) = self.answered(partitions, depths)?;
        missing.add(others);
        let mut found = Vec::new();
        for at in 0..lanes.len() {
            let each = || depths.iter().map(|(_, depths)| &depths[at]);
            let first = || each().filter_map(|(_, row)| ReadyJob::read(row.as_ref()?));
            // All jobs of the lane were claimed in the meantime.
            let Some(one) = first().next() else { continue };
            // Only another version writes keys that cannot be read.
            let Some(limits) = Limits::read(&one.limit_key) else {
                continue;
            };
            found.push((
                one,
                limits,
                each().map(|(number, _)| number).sum(),
                first().map(|entry| entry.since).min(),
            ));
        }
        let limits: Vec<&Limits> = found.iter().map(|(_, limits, ..)| limits).collect();
        let looks = self.look(&limits, TOLD, now).await?;
        let key = |((one, limits, waiting, oldest), look)| {
            let ReadyJob { queue, handler, .. } = one;
            WaitingKey {
                queue,
                handler,
                limits,
                waiting,
                oldest,
                look,
            }
        };
        Ok(found.into_iter().zip(looks).map(key).collect())
    }
}
