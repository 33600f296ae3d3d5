//! Does what is due in workflows, and reads what other servers have changed.

pub(crate) mod gone;
mod repair;

use std::time::Duration;

use hashbrown::HashSet;

use super::Engine;
use super::desk::answer::Answer;
use super::desk::request::Request;
use super::error::EngineError;
use super::queues::Paused;
use super::trouble::{Asked, Troubles};
use crate::id::{Partition, WorkflowId};
use crate::store::error::StoreError;
use crate::store::query::{Clockwork, Register};
use crate::time::Timestamp;

/// How far ahead a sweep reads timers. When sweeps follow each other within this time, no timer is late.
pub const HORIZON: Duration = Duration::from_secs(1);
/// How many due workflows of each partition one sweep handles.
pub(super) const SWEEP: usize = 256;

/// The most ranges of rows that one look reads: those of 32 queues in 16 partitions.
const RANGES: usize = 512;

/// Which partitions a sweep serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Serve {
    /// All, also where it failed lately.
    All,
    /// Those in which it is expected to work.
    Working,
}

impl Serve {
    /// How many workflows of a partition to try.
    fn most(self, troubles: &Troubles, partition: Partition, asked: Asked) -> usize {
        match self {
            Self::All => SWEEP,
            Self::Working => troubles.trusted(partition, asked, SWEEP),
        }
    }
}

impl Engine {
    /// Returns when [`Engine::next_due`] has become earlier. Only one task at a time may wait.
    ///
    /// # Cancellation
    /// Nothing is lost when the future is dropped.
    pub async fn sooner(&self) {
        self.core.context.sooner().await;
    }

    /// The time of the earliest timer: of the workflows that were changed at this server, and of those that the last sweep read within
    /// [`HORIZON`].
    #[must_use]
    pub fn next_due(&self) -> Option<Timestamp> {
        self.core.context.next_due()
    }

    /// Does what is due: retries, ends of leases, timeouts, removals. Returns whether more may be due already.
    ///
    /// # Errors
    /// The store cannot be read. What cannot be written stays due.
    pub async fn sweep(&self, now: Timestamp) -> Result<bool, StoreError> {
        self.serve(Serve::All, now).await
    }

    /// As [`Engine::sweep`], but leaves out partitions in which it failed lately, until [`Engine::probe`] finds that they work again. Then
    /// few workflows are tried first. What fails is told by [`Engine::take_unserved`].
    ///
    /// # Errors
    /// No partition can be read.
    pub async fn sweep_working(&self, now: Timestamp) -> Result<bool, StoreError> {
        self.serve(Serve::Working, now).await
    }

    async fn serve(&self, serve: Serve, now: Timestamp) -> Result<bool, StoreError> {
        self.core.context.expect_nothing();
        self.queues().set_time(now);
        // Those whose claim failed are tried again. If that fails, the next sweep does it.
        let _later = self.refill(&self.queues().failed()).await;
        self.mend_torn(serve, now).await;
        // What frees memory is asked for first.
        let (mut found, timers) =
            tokio::try_join!(self.find(Clockwork::Expiries, serve, now), self.find(Clockwork::Timers, serve, now))?;
        found.extend(timers);
        let buried = self.bury_known(found.iter_mut().map(|found| &mut found.due)).await;
        found.iter_mut().for_each(Found::choose);
        let requests = found.iter().flat_map(|found| found.due.iter().map(|&(id, _)| (id, found.which)));
        let requests = requests.map(|(id, which)| match which {
            Clockwork::Timers => (id, Request::Tick),
            Clockwork::Expiries => (id, Request::Purge),
        });
        let mut answers = self.ask_all(requests.collect(), now).await.into_iter();
        let (mut more, mut absent) = (false, HashSet::new());
        for Found { due, is_full, .. } in found {
            let each = due.iter().zip(answers.by_ref().take(due.len()));
            let served = each.filter(|((id, _), answer)| self.served(*id, answer, &mut absent)).count();
            // Without progress there is no reason to hurry.
            more |= is_full && (served > 0 || buried > 0);
        }
        self.core.context.gone.note(absent);
        Ok(more)
    }

    /// What is due in each partition.
    async fn find(&self, which: Clockwork, serve: Serve, now: Timestamp) -> Result<Vec<Found>, StoreError> {
        let (troubles, until) = (&self.core.context.troubles, now + HORIZON);
        let asked = match which {
            Clockwork::Timers => Asked::Write,
            Clockwork::Expiries => Asked::Removal,
        };
        let trusted = |partition| serve.most(troubles, partition, asked);
        let partitions: Vec<_> = self.store().all_partitions().filter(|&at| trusted(at) > 0).collect();
        // What is passed over does not take the place of others.
        let most = SWEEP + self.queues().number_aside();
        let read = self.store().due(which, until, most, &partitions).await;
        let (read, _) = self.answered(&partitions, read)?;
        let mut all = Vec::with_capacity(read.len());
        for (partition, mut due) in read {
            let upcoming = due.iter().map(|&(_, at)| at).filter(|&at| at > now).min();
            upcoming.into_iter().for_each(|at| self.core.context.expect_by(at));
            let share = trusted(partition);
            let is_full = due.iter().filter(|&&(_, at)| at <= now).count() >= if share < SWEEP { share } else { most };
            due.retain(|&(id, at)| at <= now && !self.queues().is_aside(id));
            all.push(Found { which, due, share, is_full });
        }
        Ok(all)
    }

    /// Whether an answer says that something was done. Failures are counted, to be told together.
    fn served(&self, id: WorkflowId, answer: &Result<Answer, EngineError>, absent: &mut HashSet<WorkflowId>) -> bool {
        match answer {
            Ok(_) => return true,
            // Another server did it, or the worker extended its lease.
            Err(EngineError::Refused(_)) => {}
            Err(EngineError::NoWorkflow { .. }) => _ = absent.insert(id),
            Err(EngineError::Store(error @ StoreError::Corrupt { .. })) => self.queues().pass_over(id, error),
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
        let read = self.read_names().await;
        // Jobs are looked for all the same: the names may be on a node that is gone.
        let named = read.as_ref().ok();
        // Whoever creates a job enters the name of its queue first, so one that is not there has no jobs.
        let may_have_jobs =
            |name: &str| named.is_none_or(|named| named.contains(name)) || self.core.names.has_queue(name);
        let most = (RANGES / usize::from(self.store().partitions())).max(1);
        let wanted = self.queues().mark_incomplete(may_have_jobs, most);
        let found = !wanted.is_empty() && self.refill(&wanted).await? > 0;
        read.map(|_| found)
    }

    /// The names of queues in the register.
    async fn read_names(&self) -> Result<HashSet<String>, StoreError> {
        let known = self.core.names.count();
        let (looked, queues) = tokio::try_join!(self.store().look(), self.store().register(Register::Queues))?;
        for (name, value) in &queues {
            self.queues().set_paused(name, Paused::read(value));
        }
        if let Some((names, losses)) = looked {
            self.restore_names(known, (queues.len(), names), losses).await?;
        }
        Ok(queues.into_iter().map(|(name, _)| name).collect())
    }
}

/// What is due in one partition.
#[derive(Debug)]
struct Found {
    which: Clockwork,
    due: Vec<(WorkflowId, Timestamp)>,
    /// How many of them to try.
    share: usize,
    /// Whether more may be due.
    is_full: bool,
}

impl Found {
    /// Keeps its share. When that is not all, chance decides, so that one workflow that fails again and again does not keep the others of
    /// its partition waiting.
    fn choose(&mut self) {
        if self.share < SWEEP && self.due.len() > self.share {
            fastrand::shuffle(&mut self.due);
            self.due.truncate(self.share);
        }
    }
}
