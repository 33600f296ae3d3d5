//! Claims of jobs in partitions that are assigned to other servers, if there are no local jobs.

use std::time::Duration;

use tokio::time::sleep;

use super::REFRESH;
use super::pending_claims::PendingClaims;
use crate::codec::rows::{ReadyRow, Row, lane_of};
use crate::engine::Engine;
use crate::engine::queues::demand::Contention;
use crate::engine::queues::{ClaimMode, DequeueRequest, PartitionScope};
use crate::id::Partition;
use crate::store::error::StoreError;

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
    pub(super) async fn take_elsewhere(
        &self,
        limit: usize,
        wanting: DequeueRequest<'_>,
        taken: &mut PendingClaims<'_>,
    ) -> Result<(), StoreError> {
        match self.queues().rivals(wanting.queues) {
            Contention::Contended => self.take_beyond(limit, wanting, taken).await,
            Contention::None => self.take_of_few(limit, wanting, taken).await,
            Contention::Unknown => {
                self.take_of_few(limit.min(TRIAL_JOBS), wanting, taken)
                    .await
            }
        }
    }

    async fn take_of_few(
        &self,
        limit: usize,
        wanting: DequeueRequest<'_>,
        taken: &mut PendingClaims<'_>,
    ) -> Result<(), StoreError> {
        let incomplete =
            self.queues()
                .incomplete(wanting.queues, PartitionScope::All, ClaimMode::Immediate);
        if !incomplete.is_empty() {
            self.refill_in(&incomplete, &self.few_away(), REFRESH)
                .await?;
            taken.add(self.queues().dequeue(wanting, limit));
        }
        Ok(())
    }

    /// Dequeues remote jobs behind the reserved ones. If there are none, the assigned servers
    /// finish theirs soon; jobs that still wait after that are free for all servers.
    async fn take_beyond(
        &self,
        limit: usize,
        wanting: DequeueRequest<'_>,
        taken: &mut PendingClaims<'_>,
    ) -> Result<(), StoreError> {
        for pauses in 0..=BACKLOG_WAITS {
            if pauses > 0 {
                sleep(BACKLOG_WAIT).await;
            }
            let incomplete =
                self.queues()
                    .incomplete(wanting.queues, PartitionScope::All, ClaimMode::Immediate);
            let left = if incomplete.is_empty() {
                0
            } else {
                self.refill_beyond(&incomplete, &self.few_away(), BACKLOG_ROWS)
                    .await?
            };
            // This includes local jobs that have become ready in the meantime.
            taken.add(self.queues().dequeue(wanting, limit));
            if left == 0 || !taken.jobs().is_empty() {
                break;
            }
        }
        Ok(())
    }

    /// Returns the partitions that are assigned to other servers.
    pub(super) fn away(&self) -> Vec<Partition> {
        let mine = &self.core.context.home.mine;
        self.store()
            .all_partitions()
            .filter(|at| !mine.contains(*at))
            .collect()
    }

    fn few_away(&self) -> Vec<Partition> {
        let mut away = self.away();
        fastrand::shuffle(&mut away);
        away.truncate(SAMPLED_PARTITIONS);
        away
    }
}

/// Returns the rows of each lane behind its first [`RESERVED_ROWS`] that are as urgent as its first
/// row, and the number of reserved rows. The rows are of one partition and queue.
pub(super) fn beyond(rows: Vec<Row>) -> (Vec<Row>, usize) {
    let mut all = (Vec::new(), 0);
    let mut rows = rows.into_iter().peekable();
    while let Some(first) = rows.next() {
        let lane = lane_of(&first).to_vec();
        let others = std::iter::from_fn(|| rows.next_if(|row| row.starts_with(&lane)));
        let (behind, left) = beyond_in_lane([first].into_iter().chain(others).collect());
        all.0.extend(behind);
        all.1 += left;
    }
    all
}

fn beyond_in_lane(rows: Vec<Row>) -> (Vec<Row>, usize) {
    let priority = |row: &Row| ReadyRow::read(row).map(|row| row.place.priority());
    let Some(first) = rows.first().map(priority) else {
        return (rows, 0);
    };
    let left = rows.len().min(RESERVED_ROWS);
    (
        rows.into_iter()
            .skip(RESERVED_ROWS)
            .take_while(|row| priority(row) == first)
            .collect(),
        left,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::rows::ReadyJob;
    use crate::id::{JobIndex, WorkflowId};
    use crate::time::Timestamp;

    #[test]
    fn what_is_less_urgent_than_what_is_left_is_not_taken() {
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
        let check = |urgent, all, found: std::ops::Range<usize>, left| {
            assert_eq!(
                beyond(rows(urgent, all)),
                (rows(urgent, all)[found].to_vec(), left),
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
