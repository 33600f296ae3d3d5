//! Processes due workflows, and reads changes of other servers.

mod clock_advance;
pub(crate) mod name_expiry;
pub(crate) mod orphans;

use std::time::Duration;

use hashbrown::HashSet;

use super::actor::answer::Answer;
use super::actor::request::Request;
use super::context::error::EngineError;
use super::{Engine, StoreHealth, StoreOperation};
use crate::codec::StoreError;
use crate::model::{Partition, Timestamp, WorkflowId};
use crate::store::TimeIndex;

/// Interval at which a sweep reads a partition without known due work: another server may have
/// written a timer there.
pub(super) const POLL_INTERVAL: Duration = Duration::from_secs(20);
/// Time up to which a sweep reads timers in advance. No timer is late if sweeps follow each other
/// within this time; timers that are written later are announced.
pub(super) const LOOKAHEAD: Duration = Duration::from_secs(25);
/// Delay after which a sweep tries failed work again.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Maximum due workflows of a partition that one sweep processes.
pub(super) const MAX_DUE: usize = 256;

/// Maximum row ranges of one read: those of 32 queues in 16 partitions.
const MAX_RANGES: usize = 512;

/// The assigned partitions that a sweep processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SweepScope {
    /// All, also those that failed lately.
    All,
    /// Partitions with due work, or maybe with due work, that are expected to work.
    Working,
}

impl SweepScope {
    /// Maximum workflows of a partition that a sweep tries.
    fn max_workflows(
        self,
        troubles: &StoreHealth,
        partition: Partition,
        operation: StoreOperation,
    ) -> usize {
        match self {
            Self::All => MAX_DUE,
            Self::Working => troubles.allowed(partition, operation, MAX_DUE),
        }
    }
}

impl Engine {
    /// Returns when [`Engine::next_due`] becomes earlier or [`Engine::is_healthy`] false. Only one
    /// task at a time may wait.
    ///
    /// # Cancellation
    /// Nothing is lost when the future is dropped.
    pub async fn wait_for_earlier_work(&self) {
        let context = &self.core.context;
        tokio::select! {
            () = context.earlier_sweep() => {}
            () = context.store_health.next_failure_to_retry() => {}
            () = context.queues.wait_for_refill() => {}
        }
    }

    /// Whether there are no failures, so that no sweep is needed before [`Engine::next_due`].
    /// Otherwise a sweep should follow soon.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        let context = &self.core.context;
        context.store_health.is_healthy()
            && context.queues.has_no_failures()
            && self
                .core
                .actors
                .iter()
                .all(|actor| actor.partial_writes.is_empty())
    }

    /// The time at which [`Engine::sweep_working`] has work: a timer is due, or may be.
    #[must_use]
    pub fn next_due(&self) -> Option<Timestamp> {
        self.core.context.next_sweep()
    }

    /// Records that workers could not reach this server until `now`, because it starts or was
    /// suspended. The caller must call it before the next sweep. Later failures of the store of two
    /// seconds and more are detected by the engine. Leases and timeouts that were live in the gap
    /// end one lease later, unless another server of the store was running.
    pub fn begin_serving(&self, now: Timestamp) {
        self.core.context.served_since.start_all(now);
    }

    /// Processes due work in the assigned partitions: retries, ends of leases, timeouts, removals.
    /// Returns whether more may be due already.
    ///
    /// # Errors
    /// The store cannot be read. Work that cannot be written stays due.
    pub async fn sweep(&self, now: Timestamp) -> Result<bool, StoreError> {
        self.run_sweep(SweepScope::All, now).await
    }

    /// Works as [`Engine::sweep`], but reads only partitions with due work, or maybe with due work.
    /// Partitions that failed lately are left out until [`Engine::probe`] succeeds; then only a few
    /// workflows are tried first. [`Engine::take_missed_work`] returns the failures.
    ///
    /// # Errors
    /// No partition can be read.
    pub async fn sweep_working(&self, now: Timestamp) -> Result<bool, StoreError> {
        self.run_sweep(SweepScope::Working, now).await
    }

    async fn run_sweep(&self, scope: SweepScope, now: Timestamp) -> Result<bool, StoreError> {
        self.run_upkeep(scope, now).await;
        let partitions = self.partitions_to_sweep(scope, now);
        if partitions.is_empty() {
            return Ok(false);
        }
        let mut found = self.find_all_due(scope, &partitions, now).await?;
        let removed = self
            .remove_known_orphans(found.iter_mut().map(|found| &mut found.due))
            .await;
        found.iter_mut().for_each(DueWork::limit_tries);
        self.core.context.record_recoveries(now);
        let requests = found.iter().flat_map(|found| self.due_requests(found));
        let answers = self.request_all(requests.collect(), now).await;
        self.reacquire_overdue(&answers, now).await;
        Ok(self.record_answers(found, answers, removed > 0, now))
    }

    /// Does the part of a sweep that does not depend on due work: reads, repairs and removals that
    /// failed or were left for later.
    async fn run_upkeep(&self, scope: SweepScope, now: Timestamp) {
        self.queues().set_time(now);
        self.core.context.attempt_counts.set_time(now);
        self.release_quarantined(scope);
        self.run_required_refills().await;
        self.repair_partial_writes(scope, now).await;
        self.expire_names(now).await;
    }

    /// Acquires the permits of overdue leases again that continue.
    async fn reacquire_overdue(&self, answers: &[Result<Answer, EngineError>], now: Timestamp) {
        let overdue = answers.iter().flatten();
        let overdue: Vec<_> = overdue
            .flat_map(|answer| &answer.overdue_leases)
            .copied()
            .collect();
        if !overdue.is_empty() {
            let _held = self.reacquire_permits(&overdue, now).await;
        }
    }

    /// The requests for due workflows.
    fn due_requests(&self, found: &DueWork) -> impl Iterator<Item = (WorkflowId, Request)> {
        let served = &self.core.context.served_since;
        found.due.iter().map(|&(id, _)| {
            let request = match found.index {
                TimeIndex::Timers => Request::Tick {
                    served_since: served.since(id.partition()),
                },
                TimeIndex::Expiries => Request::DeleteExpired,
            };
            (id, request)
        })
    }

    /// Records the results of due workflows. Returns whether the next sweep should follow at once.
    fn record_answers(
        &self,
        found: Vec<DueWork>,
        answers: Vec<Result<Answer, EngineError>>,
        removed: bool,
        now: Timestamp,
    ) -> bool {
        let mut answers = answers.into_iter();
        let mut more = false;
        let mut absent = HashSet::new();
        for found in found {
            let each = found.due.iter().zip(answers.by_ref().take(found.due.len()));
            let progressed = each
                .filter(|((id, _), answer)| self.made_progress(*id, answer, &mut absent))
                .count();
            // Without progress the next sweep waits.
            let hurry = found.is_full && (progressed > 0 || removed);
            more |= hurry;
            if found.is_full || progressed < found.due.len() {
                let next = if hurry { now } else { now + RETRY_AFTER };
                self.core.context.schedule_sweep(found.partition, next);
            }
        }
        self.core.context.orphan_rows.record(absent);
        more
    }

    /// Releases quarantined jobs of partitions in which the store works again.
    fn release_quarantined(&self, scope: SweepScope) {
        let troubles = &self.core.context.store_health;
        let works = |at, operation| scope.max_workflows(troubles, at, operation) > 0;
        self.queues()
            .release(|at| works(at, StoreOperation::Removal) && works(at, StoreOperation::Write));
    }

    /// The partitions that a sweep reads now. Each is read again after an interval, or earlier for
    /// a reason.
    fn partitions_to_sweep(&self, scope: SweepScope, now: Timestamp) -> Vec<Partition> {
        let context = &self.core.context;
        let mut partitions = Vec::new();
        for partition in context.membership.local_partitions.iter() {
            if scope == SweepScope::Working && !context.is_sweep_due(partition, now) {
                continue;
            }
            let works = [StoreOperation::Write, StoreOperation::Removal].map(|operation| {
                scope.max_workflows(&context.store_health, partition, operation) > 0
            });
            let next = if works == [true, true] {
                POLL_INTERVAL
            } else {
                RETRY_AFTER
            };
            context.reset_next_sweep(partition, now + next);
            partitions.extend(works.contains(&true).then_some(partition));
        }
        partitions
    }

    /// The due work of each partition. Expiries come first because they free memory.
    async fn find_all_due(
        &self,
        scope: SweepScope,
        partitions: &[Partition],
        now: Timestamp,
    ) -> Result<Vec<DueWork>, StoreError> {
        let (mut found, timers) = tokio::try_join!(
            self.find_due(TimeIndex::Expiries, scope, partitions, now),
            self.find_due(TimeIndex::Timers, scope, partitions, now)
        )?;
        found.extend(timers);
        Ok(found)
    }

    /// The due work of each partition in one index.
    async fn find_due(
        &self,
        which: TimeIndex,
        scope: SweepScope,
        partitions: &[Partition],
        now: Timestamp,
    ) -> Result<Vec<DueWork>, StoreError> {
        let context = &self.core.context;
        let operation = operation_on_due(which);
        let max_tries =
            |partition| scope.max_workflows(&context.store_health, partition, operation);
        let partitions: Vec<_> = partitions
            .iter()
            .copied()
            .filter(|&at| max_tries(at) > 0)
            .collect();
        if partitions.is_empty() {
            return Ok(Vec::new());
        }
        // Quarantined workflows must not displace others.
        let max_rows = MAX_DUE + self.queues().quarantined_workflows();
        let read = self.read_due(which, max_rows, &partitions, now).await?;
        let found = read.into_iter().map(|(partition, due)| {
            let found = DueWork {
                partition,
                index: which,
                due,
                max_tries: max_tries(partition),
                is_full: false,
            };
            self.keep_due_now(found, max_rows, now)
        });
        Ok(found.collect())
    }

    /// The rows of partitions that are due soon. Partitions that fail are read again soon.
    async fn read_due(
        &self,
        which: TimeIndex,
        max_rows: usize,
        partitions: &[Partition],
        now: Timestamp,
    ) -> Result<Vec<(Partition, Vec<(WorkflowId, Timestamp)>)>, StoreError> {
        let read = self
            .store()
            .due(which, now + LOOKAHEAD, max_rows, partitions)
            .await;
        for (&partition, read) in partitions.iter().zip(&read) {
            if read.is_err() {
                self.core
                    .context
                    .schedule_sweep(partition, now + RETRY_AFTER);
            }
        }
        Ok(self.split_answers(partitions, read)?.0)
    }

    /// Keeps the workflows that are due now and not quarantined, and schedules a sweep for the
    /// others. `max_rows` rows were read.
    fn keep_due_now(&self, mut found: DueWork, max_rows: usize, now: Timestamp) -> DueWork {
        let context = &self.core.context;
        let partition = found.partition;
        let times = || found.due.iter().map(|&(_, due)| due);
        if let Some(upcoming) = times().filter(|&due| due > now).min() {
            context.schedule_sweep(partition, upcoming);
        }
        let number = times().filter(|&due| due <= now).count();
        let full_number = if found.max_tries < MAX_DUE {
            found.max_tries
        } else {
            max_rows
        };
        found.is_full = number >= full_number;
        found
            .due
            .retain(|&(id, due)| due <= now && !self.queues().is_quarantined(id));
        if found.due.len() < number {
            context.schedule_sweep(partition, now + RETRY_AFTER);
        }
        found
    }

    /// Whether an answer means progress. Failures are collected, so that one message reports them.
    fn made_progress(
        &self,
        id: WorkflowId,
        answer: &Result<Answer, EngineError>,
        absent: &mut HashSet<WorkflowId>,
    ) -> bool {
        match answer {
            Ok(_) => return true,
            // Another server processed it, or the worker extended its lease.
            Err(EngineError::Refused(_)) => {}
            Err(EngineError::NoWorkflow { .. }) => _ = absent.insert(id),
            Err(EngineError::Store(error @ StoreError::Corrupt { .. })) => {
                self.queues().quarantine_unreadable(id, error)
            }
            Err(error) => self
                .core
                .context
                .store_health
                .record_missed_work(error.clone()),
        }
        false
    }

    /// Reads changes of other servers: which queues are paused, and ready jobs of queues that local
    /// workers wait for. Returns whether there were new jobs.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn poll_store(&self) -> Result<bool, StoreError> {
        self.release_quarantined(SweepScope::Working);
        let read = self.read_names().await;
        let max_queues = (MAX_RANGES / usize::from(self.store().partitions())).max(1);
        // Jobs are read even if that failed, because the names may be on a node that is gone.
        let named = self
            .registered_queues(self.queues().mark_unwatched_incomplete())
            .await;
        let wanted = self.queues().next_queues(named, max_queues);
        let found = self.refill_first(&wanted).await? > 0;
        read.map(|()| found)
    }
}

/// The operation of the store that due workflows need.
fn operation_on_due(index: TimeIndex) -> StoreOperation {
    match index {
        TimeIndex::Timers => StoreOperation::Write,
        TimeIndex::Expiries => StoreOperation::Removal,
    }
}

/// The due work of one partition.
#[derive(Debug)]
struct DueWork {
    partition: Partition,
    index: TimeIndex,
    due: Vec<(WorkflowId, Timestamp)>,
    /// Maximum of these workflows that are tried.
    max_tries: usize,
    /// Whether more may be due.
    is_full: bool,
}

impl DueWork {
    /// Reduces the workflows to the share, at random, so that a workflow that always fails does not
    /// keep the others of its partition waiting.
    fn limit_tries(&mut self) {
        if self.max_tries < MAX_DUE && self.due.len() > self.max_tries {
            fastrand::shuffle(&mut self.due);
            self.due.truncate(self.max_tries);
        }
    }
}
