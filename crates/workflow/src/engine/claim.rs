//! What workers do: claim, report, extend.

pub(crate) mod claimed;
mod elsewhere;
mod inputs;
pub(crate) mod leases;
pub(crate) mod report;
mod settling;

use std::time::Duration;

use self::claimed::Claimed;
use self::leases::Leases;
use self::settling::Settling;
use super::Engine;
use super::desk::answer::{Answer, Leased};
use super::desk::play::new_token;
use super::desk::request::Request;
use super::error::EngineError;
use super::queues::except::Except;
use super::queues::reading::Found;
use super::queues::{Taken, Where};
use crate::id::{Partition, WorkflowId};
use crate::record::lease::LeaseRef;
use crate::record::rows::{Row, queue_rows};
use crate::state::Worker;
use crate::store::error::StoreError;
use crate::time::Timestamp;
use crate::transition::event::Lease;

/// How many ready rows of each partition are read at once when memory has none.
const REFILL: usize = 512;
/// How many of each queue, when a worker asks for many queues.
const REFILL_LEAST: usize = 32;
/// How many of each partition, after jobs were refused that other servers had taken: enough to know the next ones.
pub(super) const REFRESH: usize = 64;
/// How often a claim is tried again after such refusals. Each time the store is read before, and somebody got the jobs.
const TRIES: usize = 8;

/// The jobs that a worker asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The queues that the worker serves.
    pub queues: Vec<String>,
    /// The name of the worker.
    pub worker: String,
    /// The highest number of jobs.
    pub limit: usize,
    /// The length of the lease: the worker must report or extend before its end.
    pub lease: Duration,
}

impl Engine {
    /// Leases ready jobs to a worker, the most urgent first. The list is empty when there are none.
    ///
    /// # Errors
    /// The store failed before any job was taken.
    ///
    /// # Cancellation
    /// When the future is dropped, jobs that were taken are given back at once.
    pub async fn claim(&self, claim: &Claim, now: Timestamp) -> Result<Vec<Claimed>, EngineError> {
        self.claim_except(claim, &[], now).await
    }

    /// [`Engine::claim`], without the jobs of some leases: a worker that gave them back wants others.
    ///
    /// # Errors
    /// The store failed before any job was taken.
    pub async fn claim_except(
        &self,
        claim: &Claim,
        except: &[LeaseRef],
        now: Timestamp,
    ) -> Result<Vec<Claimed>, EngineError> {
        self.deliver(self.lease_except(claim, except, now).await?).await
    }

    /// The first half of [`Engine::claim_except`]: leases jobs and reads nothing of what they get. [`Engine::deliver`] is the other half,
    /// for which the caller may need to find room first.
    ///
    /// # Errors
    /// The store failed before any job was taken.
    pub async fn lease_except(
        &self,
        claim: &Claim,
        except: &[LeaseRef],
        now: Timestamp,
    ) -> Result<Leases, EngineError> {
        Ok(Leases::of(self.lease(claim, &Except::of(except), now).await?))
    }

    /// Leases jobs. Those known here may have been taken elsewhere. Then the store is read, until there is work or it has none.
    async fn lease(
        &self,
        claim: &Claim,
        except: &Except,
        now: Timestamp,
    ) -> Result<Vec<(WorkflowId, Leased)>, EngineError> {
        self.queues().advance(now);
        for tried in 0..=TRIES {
            if tried > 0 {
                self.refresh(&claim.queues).await?;
            }
            let (leased, refused) = self.try_lease(claim, except, now).await?;
            if refused == 0 || !leased.is_empty() {
                return Ok(leased);
            }
        }
        Ok(Vec::new())
    }

    /// Reads those of these queues again of which jobs were refused. What other servers are the homes of is read when it is needed.
    async fn refresh(&self, queues: &[String]) -> Result<(), StoreError> {
        match self.queues().are_shared() {
            true => {
                let here: Vec<Partition> = self.core.context.home.mine.each().collect();
                self.refill_in(&self.queues().incomplete(queues, Where::Here), &here, REFRESH).await?
            }
            false => self.refill_up_to(&self.queues().incomplete(queues, Where::Anywhere), REFRESH).await?,
        };
        Ok(())
    }

    /// Leases jobs. Also returns how many of the jobs tried were no longer ready.
    async fn try_lease(
        &self,
        claim: &Claim,
        except: &Except,
        now: Timestamp,
    ) -> Result<(Vec<(WorkflowId, Leased)>, usize), EngineError> {
        let taken = self.take(claim, except).await?;
        let (worker, expires) = (Worker::from(claim.worker.as_str()), now + claim.lease);
        let requests = taken.jobs().iter().map(|taken| {
            let lease = Lease { token: new_token(), worker: worker.clone(), expires };
            (taken.workflow(), Request::Claim { job: taken.job(), lease })
        });
        let requests = requests.collect();
        let ids: Vec<WorkflowId> = taken.jobs().iter().map(Taken::workflow).collect();
        let asked = taken.asked();
        let answers = self.ask_all(requests, now).await;
        asked.settle(&answers);
        sorted(ids.into_iter().zip(answers))
    }

    /// Takes jobs out of the queues. When memory has too few, the store is read first: where jobs are at home here, and elsewhere only if
    /// there are none.
    async fn take(&self, claim: &Claim, except: &Except) -> Result<Settling<'_>, StoreError> {
        // Created before the read below: the read may fail, or the caller may leave during it.
        let first = self.queues().take(&claim.queues, claim.limit, (except, self.near()));
        let mut taken = Settling::new(self.queues(), first);
        if self.queues().are_shared() && taken.jobs().len() < claim.limit {
            let incomplete = self.queues().incomplete(&claim.queues, Where::Here);
            if !incomplete.is_empty() {
                let here: Vec<Partition> = self.core.context.home.mine.each().collect();
                self.refill_in(&incomplete, &here, REFILL).await?;
                taken.add(self.queues().take(&claim.queues, claim.limit - taken.jobs().len(), (except, self.near())));
            }
            if taken.jobs().is_empty() {
                self.take_elsewhere(claim, except, &mut taken).await?;
            }
            if !taken.jobs().is_empty() {
                return Ok(taken);
            }
        }
        if taken.jobs().len() < claim.limit {
            let incomplete = self.queues().incomplete(&claim.queues, Where::Anywhere);
            if !incomplete.is_empty() {
                match self.queues().are_shared() {
                    // Those at home here were read above.
                    true => self.refill_in(&incomplete, &self.away(), REFRESH).await?,
                    false => self.refill_up_to(&incomplete, REFILL).await?,
                };
                let wanted = claim.limit - taken.jobs().len();
                taken.add(self.queues().take(&claim.queues, wanted, (except, self.near())));
            }
        }
        Ok(taken)
    }

    /// Waits until one of these queues may have work for [`Engine::claim`]. Call this before the claim that may find nothing, so that
    /// work that arrives in between is not missed.
    pub fn arrival<'a>(&'a self, queues: &'a [String]) -> impl Future<Output = ()> + 'a {
        self.arrival_except(queues, &[])
    }

    /// [`Engine::arrival`] for [`Engine::claim_except`].
    pub fn arrival_except<'a>(
        &'a self,
        queues: &'a [String],
        except: &[LeaseRef],
    ) -> impl Future<Output = ()> + use<'a> {
        let waiting = self.queues().wait(queues, Except::of(except));
        waiting.arrived()
    }

    /// Reads ready rows of those queues whose rows may not all be in memory. Returns how many jobs were not known.
    pub(crate) async fn refill(&self, queues: &[String]) -> Result<usize, StoreError> {
        self.refill_up_to(queues, REFILL).await
    }

    async fn refill_up_to(&self, queues: &[String], most: usize) -> Result<usize, StoreError> {
        self.refill_in(queues, &self.store().all_partitions().collect::<Vec<_>>(), most).await
    }

    /// Reads ready rows of queues, at most so many of each of these partitions. Returns how many jobs were not known.
    pub(crate) async fn refill_in(
        &self,
        queues: &[String],
        wanted: &[Partition],
        most: usize,
    ) -> Result<usize, StoreError> {
        Ok(self.read_ready(queues, wanted, (most, Reads::All)).await?.0)
    }

    /// The same without the first rows of each partition. Returns how many of these there are.
    async fn refill_beyond(&self, queues: &[String], wanted: &[Partition], most: usize) -> Result<usize, StoreError> {
        Ok(self.read_ready(queues, wanted, (most, Reads::Beyond)).await?.1)
    }

    /// Returns how many jobs were not known, and how many were left.
    async fn read_ready(
        &self,
        queues: &[String],
        wanted: &[Partition],
        (most, reads): (usize, Reads),
    ) -> Result<(usize, usize), StoreError> {
        if queues.is_empty() || wanted.is_empty() {
            return Ok((0, 0));
        }
        // Fewer rows of each queue when there are many queues: the read stays small.
        let limit = (most / queues.len()).max(REFILL_LEAST.min(most)) + self.queues().passed_over(queues);
        let prefixes: Vec<Row> = queues.iter().map(|queue| queue_rows(queue)).collect();
        let reading = self.queues().read(queues);
        let (mut partitions, _) = self.readable();
        partitions.retain(|partition| wanted.contains(partition));
        // What is remembered of a partition that does not answer cannot be claimed, and is read again when it does.
        let mut by_queue = vec![vec![None; self.store().partitions().into()]; queues.len()];
        for partition in wanted {
            by_queue.iter_mut().for_each(|queue| queue[usize::from(partition.0)] = Some(Vec::new()));
        }
        let mut left = 0;
        if !partitions.is_empty() {
            let found = self.store().ready(&prefixes, limit, &partitions).await;
            let (mut answered, _) = self.answered(&partitions, found)?;
            for (partition, each) in &mut answered {
                let rows = std::mem::take(each).into_iter().zip(&mut by_queue);
                rows.for_each(|(rows, queue)| {
                    let (rows, first) = if reads == Reads::All { (rows, 0) } else { elsewhere::beyond(rows) };
                    queue[usize::from(partition.0)] = Some(rows);
                    left += first;
                });
            }
        }
        // Who leaves rows knows that there are others.
        let limit = if reads == Reads::All { limit } else { 0 };
        let refilled = reading.finish(by_queue.iter().map(|partitions| Found { partitions, limit }));
        self.bury_rows(refilled.stale).await;
        Ok((refilled.new.len(), left))
    }
}

/// Which ready rows are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reads {
    All,
    /// Without the first of each partition.
    Beyond,
}

/// The jobs that were leased, and how many were refused.
///
/// # Errors
/// None was leased, and one failed.
fn sorted(
    answers: impl Iterator<Item = (WorkflowId, Result<Answer, EngineError>)>,
) -> Result<(Vec<(WorkflowId, Leased)>, usize), EngineError> {
    let (mut leased, mut refused) = (Vec::new(), 0);
    let mut failure = None;
    for (id, answer) in answers {
        match answer {
            Ok(answer) => leased.extend(answer.leased.into_iter().map(|leased| (id, leased))),
            // Another server was faster, or the job was cancelled, or its workflow cannot be read: others can.
            Err(
                EngineError::Refused(_)
                | EngineError::NoWorkflow { .. }
                | EngineError::Store(StoreError::Corrupt { .. }),
            ) => refused += 1,
            Err(error) => failure = Some(error),
        }
    }
    match failure {
        Some(error) if leased.is_empty() => Err(error),
        _ => Ok((leased, refused)),
    }
}
