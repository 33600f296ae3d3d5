//! Processes due workflows, and reads changes of other servers.

mod clock_advance;
pub(crate) mod name_expiry;
pub(crate) mod orphans;
mod repair;

use std::time::Duration;

use hashbrown::HashSet;

use super::Engine;
use super::actor::answer::Answer;
use super::actor::request::Request;
use super::error::EngineError;
use super::store_health::{StoreOperation, Troubles};
use crate::id::{Partition, WorkflowId};
use crate::store::error::StoreError;
use crate::store::query::TimeIndex;
use crate::time::Timestamp;

/// Interval at which a sweep reads a partition without known due work: another server may have
/// written a timer there.
pub(super) const POLL_INTERVAL: Duration = Duration::from_secs(20);
/// Time up to which a sweep reads timers in advance. No timer is late if sweeps follow each other
/// within this time; timers that are written later are announced.
pub(super) const LOOKAHEAD: Duration = Duration::from_secs(25);
/// Delay after which a sweep tries failed work again.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Maximum due workflows of a partition that one sweep processes.
pub(super) const SWEEP: usize = 256;

/// Maximum row ranges of one read: those of 32 queues in 16 partitions.
const RANGES: usize = 512;

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
    fn most(self, troubles: &Troubles, partition: Partition, asked: StoreOperation) -> usize {
        match self {
            Self::All => SWEEP,
            Self::Working => troubles.trusted(partition, asked, SWEEP),
        }
    }
}

impl Engine {
    /// Returns when [`Engine::next_due`] becomes earlier or [`Engine::is_healthy`] false. Only one
    /// task at a time may wait.
    ///
    /// # Cancellation
    /// Nothing is lost when the future is dropped.
    pub async fn sooner(&self) {
        let context = &self.core.context;
        tokio::select! {
            () = context.sooner() => {}
            () = context.troubles.called() => {}
            () = context.queues.wait_for_refill() => {}
        }
    }

    /// Whether there are no failures, so that no sweep is needed before [`Engine::next_due`].
    /// Otherwise a sweep should follow soon.
    #[must_use]
    pub fn is_calm(&self) -> bool {
        let context = &self.core.context;
        context.troubles.is_none()
            && context.queues.are_well()
            && self.core.desks.iter().all(|desk| desk.torn.is_none())
    }

    /// The time at which [`Engine::sweep_working`] has work: a timer is due, or may be.
    #[must_use]
    pub fn next_due(&self) -> Option<Timestamp> {
        self.core.context.next_due()
    }

    /// Records that workers could not reach this server until `now`, because it starts or was
    /// suspended. The caller must call it before the next sweep. Later failures of the store of two
    /// seconds and more are detected by the engine. Leases and timeouts that were live in the gap
    /// end one lease later, unless another server of the store was running.
    pub fn begin_serving(&self, now: Timestamp) {
        self.core.context.served.begin(now);
    }

    /// Processes due work in the assigned partitions: retries, ends of leases, timeouts, removals.
    /// Returns whether more may be due already.
    ///
    /// # Errors
    /// The store cannot be read. Work that cannot be written stays due.
    pub async fn sweep(&self, now: Timestamp) -> Result<bool, StoreError> {
        self.serve(SweepScope::All, now).await
    }

    /// Works as [`Engine::sweep`], but reads only partitions with due work, or maybe with due work.
    /// Partitions that failed lately are left out until [`Engine::probe`] succeeds; then only a few
    /// workflows are tried first. [`Engine::take_unserved`] returns the failures.
    ///
    /// # Errors
    /// No partition can be read.
    pub async fn sweep_working(&self, now: Timestamp) -> Result<bool, StoreError> {
        self.serve(SweepScope::Working, now).await
    }

    async fn serve(&self, serve: SweepScope, now: Timestamp) -> Result<bool, StoreError> {
        self.queues().set_time(now);
        self.core.context.tally.set_time(now);
        self.take_unwritten(serve);
        // Queues whose claim failed and resumed queues are read again. If that fails, the next
        // sweep does it.
        let _later = self.refill(&self.queues().failed()).await;
        self.mend_torn(serve, now).await;
        self.expire_names(now).await;
        let partitions = self.to_sweep(serve, now);
        if partitions.is_empty() {
            return Ok(false);
        }
        // Expiries come first because they free memory.
        let (mut found, timers) = tokio::try_join!(
            self.find(TimeIndex::Expiries, serve, &partitions, now),
            self.find(TimeIndex::Timers, serve, &partitions, now)
        )?;
        found.extend(timers);
        let buried = self
            .bury_known(found.iter_mut().map(|found| &mut found.due))
            .await;
        found.iter_mut().for_each(DueWork::choose);
        self.core.context.note_gaps(now);
        let requests = found.iter().flat_map(|found| self.requests(found));
        let answers = self.request_all(requests.collect(), now).await;
        let spared: Vec<_> = answers
            .iter()
            .flatten()
            .flat_map(|answer| &answer.spared)
            .copied()
            .collect();
        if !spared.is_empty() {
            let _held = self.hold_spared(&spared, now).await;
        }
        Ok(self.note_answers(found, answers, buried > 0, now))
    }

    /// The requests for due workflows.
    fn requests(&self, found: &DueWork) -> impl Iterator<Item = (WorkflowId, Request)> {
        let served = &self.core.context.served;
        found.due.iter().map(|&(id, _)| {
            let request = match found.which {
                TimeIndex::Timers => Request::Tick {
                    served_since: served.since(id.partition()),
                },
                TimeIndex::Expiries => Request::Purge,
            };
            (id, request)
        })
    }

    /// Records the results of due workflows. Returns whether the next sweep should follow at once.
    fn note_answers(
        &self,
        found: Vec<DueWork>,
        answers: Vec<Result<Answer, EngineError>>,
        buried: bool,
        now: Timestamp,
    ) -> bool {
        let mut answers = answers.into_iter();
        let mut more = false;
        let mut absent = HashSet::new();
        for found in found {
            let each = found.due.iter().zip(answers.by_ref().take(found.due.len()));
            let served = each
                .filter(|((id, _), answer)| self.served(*id, answer, &mut absent))
                .count();
            // Without progress the next sweep waits.
            let hurry = found.is_full && (served > 0 || buried);
            more |= hurry;
            if found.is_full || served < found.due.len() {
                let next = if hurry { now } else { now + RETRY_AFTER };
                self.core.context.expect_by(found.partition, next);
            }
        }
        self.core.context.gone.note(absent);
        more
    }

    /// Releases quarantined jobs of partitions in which the store works again.
    fn take_unwritten(&self, serve: SweepScope) {
        let troubles = &self.core.context.troubles;
        let works = |at, asked| serve.most(troubles, at, asked) > 0;
        self.queues()
            .release(|at| works(at, StoreOperation::Removal) && works(at, StoreOperation::Write));
    }

    /// The partitions that a sweep reads now. Each is read again after an interval, or earlier for
    /// a reason.
    fn to_sweep(&self, serve: SweepScope, now: Timestamp) -> Vec<Partition> {
        let context = &self.core.context;
        let mut partitions = Vec::new();
        for partition in context.home.mine.each() {
            if serve == SweepScope::Working && !context.is_due(partition, now) {
                continue;
            }
            let works = [StoreOperation::Write, StoreOperation::Removal]
                .map(|asked| serve.most(&context.troubles, partition, asked) > 0);
            let next = if works == [true, true] {
                POLL_INTERVAL
            } else {
                RETRY_AFTER
            };
            context.expect_only(partition, now + next);
            partitions.extend(works.contains(&true).then_some(partition));
        }
        partitions
    }

    /// The due work of each partition.
    async fn find(
        &self,
        which: TimeIndex,
        serve: SweepScope,
        partitions: &[Partition],
        now: Timestamp,
    ) -> Result<Vec<DueWork>, StoreError> {
        let context = &self.core.context;
        let asked = match which {
            TimeIndex::Timers => StoreOperation::Write,
            TimeIndex::Expiries => StoreOperation::Removal,
        };
        let trusted = |partition| serve.most(&context.troubles, partition, asked);
        let partitions: Vec<_> = partitions
            .iter()
            .copied()
            .filter(|&at| trusted(at) > 0)
            .collect();
        if partitions.is_empty() {
            return Ok(Vec::new());
        }
        // Quarantined workflows must not displace others.
        let most = SWEEP + self.queues().number_aside();
        let read = self
            .store()
            .due(which, now + LOOKAHEAD, most, &partitions)
            .await;
        read.iter()
            .zip(&partitions)
            .filter(|(read, _)| read.is_err())
            .for_each(|(_, &at)| {
                context.expect_by(at, now + RETRY_AFTER);
            });
        let (read, _) = self.answered(&partitions, read)?;
        let mut all = Vec::with_capacity(read.len());
        for (partition, mut due) in read {
            let upcoming = due.iter().map(|&(_, at)| at).filter(|&at| at > now).min();
            upcoming
                .into_iter()
                .for_each(|at| context.expect_by(partition, at));
            let share = trusted(partition);
            let is_full = due.iter().filter(|&&(_, at)| at <= now).count()
                >= if share < SWEEP { share } else { most };
            let number = due.iter().filter(|(_, at)| *at <= now).count();
            due.retain(|&(id, at)| at <= now && !self.queues().is_aside(id));
            if due.len() < number {
                context.expect_by(partition, now + RETRY_AFTER);
            }
            all.push(DueWork {
                partition,
                which,
                due,
                share,
                is_full,
            });
        }
        Ok(all)
    }

    /// Whether an answer means progress. Failures are collected, so that one message reports them.
    fn served(
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
                self.queues().pass_over(id, error)
            }
            Err(error) => self.core.context.troubles.unserved(error.clone()),
        }
        false
    }

    /// Reads changes of other servers: which queues are paused, and ready jobs of queues that local
    /// workers wait for. Returns whether there were new jobs.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn look_around(&self) -> Result<bool, StoreError> {
        self.take_unwritten(SweepScope::Working);
        let read = self.read_names().await;
        let most = (RANGES / usize::from(self.store().partitions())).max(1);
        // Jobs are read even if that failed, because the names may be on a node that is gone.
        let named = self.named(self.queues().age()).await;
        let wanted = self.queues().in_turn(named, most);
        let found = self.refill_first(wanted).await? > 0;
        read.map(|()| found)
    }
}

/// The due work of one partition.
#[derive(Debug)]
struct DueWork {
    partition: Partition,
    which: TimeIndex,
    due: Vec<(WorkflowId, Timestamp)>,
    /// Maximum of these workflows that are tried.
    share: usize,
    /// Whether more may be due.
    is_full: bool,
}

impl DueWork {
    /// Reduces the workflows to the share, at random, so that a workflow that always fails does not
    /// keep the others of its partition waiting.
    fn choose(&mut self) {
        if self.share < SWEEP && self.due.len() > self.share {
            fastrand::shuffle(&mut self.due);
            self.due.truncate(self.share);
        }
    }
}
