//! Claims of jobs in partitions that are assigned to other servers, if there are no local jobs.

use std::time::Duration;

use tokio::time::sleep;

use super::REFRESH_ROWS;
use super::pending_claims::PendingClaims;
use crate::codec::{ReadyRow, Row, StoreError, lane_prefix};
use crate::engine::Engine;
use crate::model::Partition;
use crate::queue::cache::DequeueRequest;
use crate::queue::{ClaimMode, Contention, PartitionScope};

/// Number of remote partitions that are tried before all of them.
const SAMPLED_PARTITIONS: usize = 3;
/// Maximum number of jobs of a trial claim, while it is unknown whether other servers contend for
/// them.
const TRIAL_JOBS: usize = 16;
/// Number of rows that are read of each partition to find jobs behind the reserved ones.
const BACKLOG_ROWS: usize = 512;
/// Ready jobs of a lane that are left to the assigned server while it claims: more than it has in
/// progress in one partition.
pub(super) const RESERVED_ROWS: usize = 128;
/// Time between two attempts while the assigned servers have only reserved jobs, and number of
/// further attempts.
const BACKLOG_WAIT: Duration = Duration::from_millis(20);
const BACKLOG_WAITS: usize = 2;

impl Engine {
    /// Dequeues jobs of a few remote partitions, chosen at random so that servers without work do
    /// not contend for the same jobs.
    pub(super) async fn claim_remote(
        &self,
        limit: usize,
        request: DequeueRequest<'_>,
        dequeued: &mut PendingClaims<'_>,
    ) -> Result<(), StoreError> {
        match self.queues().contention(request.queues) {
            Contention::Contended => self.claim_past_backlog(limit, request, dequeued).await,
            Contention::None => self.claim_from_sample(limit, request, dequeued).await,
            Contention::Unknown => {
                self.claim_from_sample(limit.min(TRIAL_JOBS), request, dequeued)
                    .await
            }
        }
    }

    async fn claim_from_sample(
        &self,
        limit: usize,
        request: DequeueRequest<'_>,
        dequeued: &mut PendingClaims<'_>,
    ) -> Result<(), StoreError> {
        let incomplete =
            self.queues()
                .incomplete(request.queues, PartitionScope::All, ClaimMode::Immediate);
        if !incomplete.is_empty() {
            self.refill_in(&incomplete, &self.sampled_remote_partitions(), REFRESH_ROWS)
                .await?;
            dequeued.fill(request, limit);
        }
        Ok(())
    }

    /// Dequeues remote jobs behind the reserved ones. If there are none, the assigned servers
    /// finish theirs soon; jobs that still wait after that are free for all servers.
    async fn claim_past_backlog(
        &self,
        limit: usize,
        request: DequeueRequest<'_>,
        dequeued: &mut PendingClaims<'_>,
    ) -> Result<(), StoreError> {
        for waits in 0..=BACKLOG_WAITS {
            if waits > 0 {
                sleep(BACKLOG_WAIT).await;
            }
            let incomplete =
                self.queues()
                    .incomplete(request.queues, PartitionScope::All, ClaimMode::Immediate);
            let reserved = if incomplete.is_empty() {
                0
            } else {
                self.refill_past_backlog(
                    &incomplete,
                    &self.sampled_remote_partitions(),
                    BACKLOG_ROWS,
                )
                .await?
            };
            // This includes local jobs that have become ready in the meantime.
            dequeued.fill(request, limit);
            if reserved == 0 || !dequeued.jobs().is_empty() {
                break;
            }
        }
        Ok(())
    }

    /// Returns the partitions that are assigned to other servers.
    pub(in crate::engine) fn remote_partitions(&self) -> Vec<Partition> {
        let local_partitions = &self.core.context.membership.local_partitions;
        self.store()
            .all_partitions()
            .filter(|at| !local_partitions.contains(*at))
            .collect()
    }

    fn sampled_remote_partitions(&self) -> Vec<Partition> {
        let mut partitions = self.remote_partitions();
        fastrand::shuffle(&mut partitions);
        partitions.truncate(SAMPLED_PARTITIONS);
        partitions
    }
}

/// Returns the rows of each lane behind its first [`RESERVED_ROWS`] that are as urgent as its first
/// row, and the number of reserved rows. The rows are of one partition and queue.
pub(super) fn rows_past_backlog(rows: Vec<Row>) -> (Vec<Row>, usize) {
    let mut all = (Vec::new(), 0);
    let mut rows = rows.into_iter().peekable();
    while let Some(first) = rows.next() {
        let lane = lane_prefix(&first).to_vec();
        let others = std::iter::from_fn(|| rows.next_if(|row| row.starts_with(&lane)));
        let (behind, reserved) =
            lane_rows_past_backlog([first].into_iter().chain(others).collect());
        all.0.extend(behind);
        all.1 += reserved;
    }
    all
}

fn lane_rows_past_backlog(rows: Vec<Row>) -> (Vec<Row>, usize) {
    let priority = |row: &Row| ReadyRow::read(row).map(|row| row.key.priority());
    let Some(first) = rows.first().map(priority) else {
        return (rows, 0);
    };
    let reserved = rows.len().min(RESERVED_ROWS);
    (
        rows.into_iter()
            .skip(RESERVED_ROWS)
            .take_while(|row| priority(row) == first)
            .collect(),
        reserved,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::ReadyJob;
    use crate::model::{JobIndex, Timestamp, WorkflowId};

    #[test]
    fn jobs_less_urgent_than_reserved_ones_are_not_claimed() {
        let row = |at: usize, priority| {
            let since = Timestamp::from_micros(at as u64);
            let workflow = WorkflowId::new(since, Partition(1), 1);
            let job = JobIndex(0);
            ReadyJob {
                queue: "q".to_owned(),
                handler: "h".to_owned(),
                limit_key: String::new(),
                priority,
                since,
                workflow,
                job,
            }
            .row()
        };
        let rows = |urgent: usize, all: usize| {
            (0..all)
                .map(|at| row(at, u8::from(at < urgent)))
                .collect::<Vec<_>>()
        };
        let check = |urgent, all, found: std::ops::Range<usize>, reserved| {
            assert_eq!(
                rows_past_backlog(rows(urgent, all)),
                (rows(urgent, all)[found].to_vec(), reserved),
                "{urgent} of {all}"
            );
        };
        check(0, 0, 0..0, 0);
        check(9, 9, 9..9, 9);
        check(200, 200, RESERVED_ROWS..200, RESERVED_ROWS);
        check(150, 200, RESERVED_ROWS..150, RESERVED_ROWS);
        check(100, 200, 100..100, RESERVED_ROWS);
        check(0, 200, RESERVED_ROWS..200, RESERVED_ROWS);
    }
}
