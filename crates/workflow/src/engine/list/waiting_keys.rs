//! Limit keys with waiting jobs, for people. The limit key of a job stands for all of its limits.

use super::partial::{MissingPartitions, PartialResult};
use crate::codec::{ReadyJob, ReadyRow, Row, lane_prefix};
use crate::engine::Engine;
use crate::engine::context::error::EngineError;
use crate::engine::limits::status::LimitStatus;
use crate::graph::Limits;
use crate::model::{Partition, Timestamp};
use crate::store::query::lane_scan::LaneScan;

/// Maximum reads of each partition for one page, when most lanes are of jobs without limits.
const MAX_READS: usize = 10;
/// Maximum holders of a concurrency limit that are listed.
const MAX_HOLDERS: usize = 10;

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
    pub status: LimitStatus,
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
struct LimitedLanes {
    /// Prefixes of the lanes, sorted, without duplicates.
    limited: Vec<Row>,
    /// The last lane up to which the read is complete. `None` if it is complete.
    complete_until: Option<Row>,
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
    ) -> Result<PartialResult<WaitingKeyPage>, EngineError> {
        let (partitions, mut missing) = self.readable_partitions();
        let mut from = after.map(<[u8]>::to_vec);
        let mut lanes = Vec::new();
        for _ in 0..MAX_READS {
            let scan = queue.map_or_else(LaneScan::all, LaneScan::all_of_queue);
            let scan = from.iter().fold(scan, |scan, lane| scan.after_lane(lane));
            let found = self
                .limited_lanes(&scan, limit + 1 - lanes.len(), &partitions, &mut missing)
                .await?;
            lanes.extend(found.limited);
            from = found.complete_until;
            if from.is_none() || lanes.len() > limit {
                break;
            }
        }
        if lanes.len() > limit {
            lanes.truncate(limit);
            from = lanes.last().cloned();
        }
        let keys = self
            .read_keys(&lanes, &partitions, &mut missing, now)
            .await?;
        Ok(PartialResult {
            found: WaitingKeyPage { keys, next: from },
            missing,
        })
    }

    async fn limited_lanes(
        &self,
        scan: &LaneScan,
        number: usize,
        partitions: &[Partition],
        missing: &mut MissingPartitions,
    ) -> Result<LimitedLanes, EngineError> {
        let wanted: Vec<(Partition, Vec<LaneScan>)> = partitions
            .iter()
            .map(|at| (*at, vec![scan.clone()]))
            .collect();
        let read = self.store().lanes(&wanted, 1, number).await;
        let (read, others) = self.split_answers(partitions, read)?;
        missing.add(others);
        // After the last lane of a partition that has more, lanes may be missing.
        let last = |(rows, all): &(Vec<Row>, bool)| {
            rows.last()
                .filter(|_| !all)
                .map(|row| lane_prefix(row).to_vec())
        };
        let scans = || read.iter().flat_map(|(_, scans)| scans);
        let complete_until = scans().filter_map(last).min();
        let known = |lane: &Row| {
            complete_until
                .as_ref()
                .is_none_or(|complete_until| lane <= complete_until)
        };
        let mut limited: Vec<Row> = scans()
            .flat_map(|(rows, _)| rows)
            .filter(|row| ReadyRow::read(row).is_some_and(|row| !row.limit_key.is_empty()))
            .map(|row| lane_prefix(row).to_vec())
            .filter(known)
            .collect();
        limited.sort_unstable();
        limited.dedup();
        Ok(LimitedLanes {
            limited,
            complete_until,
        })
    }

    async fn read_keys(
        &self,
        lanes: &[Row],
        partitions: &[Partition],
        missing: &mut MissingPartitions,
        now: Timestamp,
    ) -> Result<Vec<WaitingKey>, EngineError> {
        let depths = self.store().ready_depth(lanes, partitions).await;
        let (depths, others) = self.split_answers(partitions, depths)?;
        missing.add(others);
        let mut found = Vec::new();
        for at in 0..lanes.len() {
            let per_partition = || depths.iter().map(|(_, depths)| &depths[at]);
            let first = || per_partition().filter_map(|(_, row)| ReadyJob::read(row.as_ref()?));
            // All jobs of the lane were claimed in the meantime.
            let Some(job) = first().next() else { continue };
            // Only another version writes keys that cannot be read.
            let Some(limits) = Limits::parse(&job.limit_key) else {
                continue;
            };
            found.push((
                job,
                limits,
                per_partition().map(|(number, _)| number).sum(),
                first().map(|entry| entry.since).min(),
            ));
        }
        let limits: Vec<&Limits> = found.iter().map(|(_, limits, ..)| limits).collect();
        let statuses = self.limit_status(&limits, MAX_HOLDERS, now).await?;
        let key = |((job, limits, waiting, oldest), status)| {
            let ReadyJob { queue, handler, .. } = job;
            WaitingKey {
                queue,
                handler,
                limits,
                waiting,
                oldest,
                status,
            }
        };
        Ok(found.into_iter().zip(statuses).map(key).collect())
    }
}
