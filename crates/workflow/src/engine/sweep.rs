//! Does what is due in workflows, and reads what other servers have changed.

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

/// How often a sweep looks at a partition in which nothing is known to be due: another server may have written a timer there.
pub(super) const POLL_INTERVAL: Duration = Duration::from_secs(20);
/// How far ahead a sweep reads timers. No timer is late when sweeps follow each other within this time; others that are written meanwhile are
/// told of.
pub(super) const LOOKAHEAD: Duration = Duration::from_secs(25);
/// When a sweep looks again at what could not be done.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// How many due workflows of each partition one sweep handles.
pub(super) const SWEEP: usize = 256;

/// The most ranges of rows that one look reads: those of 32 queues in 16 partitions.
const RANGES: usize = 512;

/// Which partitions a sweep serves, of those that are at home here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SweepScope {
    /// All, also where it failed lately.
    All,
    /// Those in which something is due, or may be, and it is expected to work.
    Working,
}

impl SweepScope {
    /// How many workflows of a partition to try.
    fn most(self, troubles: &Troubles, partition: Partition, asked: StoreOperation) -> usize {
        match self {
            Self::All => SWEEP,
            Self::Working => troubles.trusted(partition, asked, SWEEP),
        }
    }
}

impl Engine {
    /// Returns when [`Engine::next_due`] has become earlier, or [`Engine::is_calm`] untrue. Only one task at a time may wait.
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

    /// Whether all works, so that a sweep has nothing to do before [`Engine::next_due`]. Else it is to try again soon.
    #[must_use]
    pub fn is_calm(&self) -> bool {
        let context = &self.core.context;
        context.troubles.is_none()
            && context.queues.are_well()
            && self.core.desks.iter().all(|desk| desk.torn.is_none())
    }

    /// When [`Engine::sweep_working`] has something to do: a timer is due, or may be.
    #[must_use]
    pub fn next_due(&self) -> Option<Timestamp> {
        self.core.context.next_due()
    }

    /// Until `now`, workers could not reach this server: it begins, or it stood still. To be called before the first sweep after that; from then on the engine
    /// notices by itself that the store failed for two seconds and more. Leases and timeouts that were live in the gap end one lease later, unless another
    /// server of the store was there.
    pub fn begin_serving(&self, now: Timestamp) {
        self.core.context.served.begin(now);
    }

    /// Does what is due in the partitions that are at home here: retries, ends of leases, timeouts, removals. Returns whether more may be due
    /// already.
    ///
    /// # Errors
    /// The store cannot be read. What cannot be written stays due.
    pub async fn sweep(&self, now: Timestamp) -> Result<bool, StoreError> {
        self.serve(SweepScope::All, now).await
    }

    /// As [`Engine::sweep`], but reads only where something is due, or may be. It leaves out partitions in which it failed lately, until [`Engine::probe`] finds that they work again. Then
    /// few workflows are tried first. What fails is told by [`Engine::take_unserved`].
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
        // Those whose claim failed, and those that were resumed, are read again. If that fails, the next sweep does it.
        let _later = self.refill(&self.queues().failed()).await;
        self.mend_torn(serve, now).await;
        self.expire_names(now).await;
        let partitions = self.to_sweep(serve, now);
        if partitions.is_empty() {
            return Ok(false);
        }
        // What frees memory is asked for first.
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

    /// What to ask for the workflows that are due.
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

    /// Notes what came of workflows that were due. Returns whether the next sweep is to follow at once.
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
            // Without progress there is no reason to hurry.
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

    /// Looks again for jobs that were passed over because the store failed, where it works now.
    fn take_unwritten(&self, serve: SweepScope) {
        let troubles = &self.core.context.troubles;
        let works = |at, asked| serve.most(troubles, at, asked) > 0;
        self.queues()
            .release(|at| works(at, StoreOperation::Removal) && works(at, StoreOperation::Write));
    }

    /// The partitions that a sweep looks at now. It looks at them again after a while, or earlier if it finds a reason.
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

    /// What is due in each partition.
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
        // What is passed over does not take the place of others.
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

    /// Whether an answer says that something was done. Failures are counted, to be told together.
    fn served(
        &self,
        id: WorkflowId,
        answer: &Result<Answer, EngineError>,
        absent: &mut HashSet<WorkflowId>,
    ) -> bool {
        match answer {
            Ok(_) => return true,
            // Another server did it, or the worker extended its lease.
            Err(EngineError::Refused(_)) => {}
            Err(EngineError::NoWorkflow { .. }) => _ = absent.insert(id),
            Err(EngineError::Store(error @ StoreError::Corrupt { .. })) => {
                self.queues().pass_over(id, error)
            }
            Err(error) => self.core.context.troubles.unserved(error.clone()),
        }
        false
    }

    /// Reads what other servers have changed: which queues are paused, and ready jobs of the queues that a worker waits for here.
    /// Returns whether any of these jobs was not known.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn look_around(&self) -> Result<bool, StoreError> {
        self.take_unwritten(SweepScope::Working);
        let read = self.read_names().await;
        let most = (RANGES / usize::from(self.store().partitions())).max(1);
        // Jobs are looked for all the same if that failed: the names may be on a node that is gone.
        let named = self.named(self.queues().age()).await;
        let wanted = self.queues().in_turn(named, most);
        let found = self.refill_first(wanted).await? > 0;
        read.map(|()| found)
    }
}

/// What is due in one partition.
#[derive(Debug)]
struct DueWork {
    partition: Partition,
    which: TimeIndex,
    due: Vec<(WorkflowId, Timestamp)>,
    /// How many of them to try.
    share: usize,
    /// Whether more may be due.
    is_full: bool,
}

impl DueWork {
    /// Keeps its share. When that is not all, chance decides, so that one workflow that fails again and again does not keep the others of
    /// its partition waiting.
    fn choose(&mut self) {
        if self.share < SWEEP && self.due.len() > self.share {
            fastrand::shuffle(&mut self.due);
            self.due.truncate(self.share);
        }
    }
}
