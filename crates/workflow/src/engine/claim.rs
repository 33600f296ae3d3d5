//! What workers do: claim, report, extend.

pub(crate) mod claimed;
mod inputs;
pub(crate) mod report;
mod settling;

use std::time::Duration;

use self::claimed::Claimed;
use self::settling::Settling;
use super::Engine;
use super::desk::answer::{Answer, Leased};
use super::desk::play::new_token;
use super::desk::request::Request;
use super::error::EngineError;
use super::queues::Taken;
use crate::id::WorkflowId;
use crate::record::rows::{Row, queue_rows};
use crate::store::error::StoreError;
use crate::time::Timestamp;
use crate::transition::event::Lease;

/// How many ready rows of each partition are read at once when memory has none.
const REFILL: usize = 512;
/// How many of each queue, when a worker asks for many queues.
const REFILL_LEAST: usize = 32;

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
        let (leased, refused) = self.lease(claim, now).await?;
        // The jobs known here may be taken already. Then the store is read, but only once: other servers may be faster again and again.
        let leased = if leased.is_empty() && refused > 0 { self.lease(claim, now).await?.0 } else { leased };
        self.with_inputs(leased).await
    }

    /// Leases jobs. Also returns how many of the jobs tried were no longer ready.
    async fn lease(&self, claim: &Claim, now: Timestamp) -> Result<(Vec<(WorkflowId, Leased)>, usize), EngineError> {
        let taken = self.take(claim).await?;
        let requests = taken.jobs().iter().map(|taken| {
            let lease = Lease { token: new_token(), worker: claim.worker.as_str().into(), expires: now + claim.lease };
            (taken.workflow(), Request::Claim { job: taken.job(), lease })
        });
        let requests = requests.collect();
        let ids: Vec<WorkflowId> = taken.jobs().iter().map(Taken::workflow).collect();
        let asked = taken.asked();
        let answers = self.ask_all(requests, now).await;
        sorted(ids.into_iter().zip(asked.settle(answers)))
    }

    /// Takes jobs out of the queues. When memory has too few, the store is read first.
    async fn take(&self, claim: &Claim) -> Result<Settling<'_>, StoreError> {
        // Created before the read below: the read may fail, or the caller may leave during it.
        let first = self.queues().take(&claim.queues, claim.limit);
        let mut taken = Settling::new(self.queues(), first);
        if taken.jobs().len() < claim.limit {
            let incomplete = self.queues().incomplete(&claim.queues);
            if !incomplete.is_empty() {
                self.refill(&incomplete).await?;
                let wanted = claim.limit - taken.jobs().len();
                taken.add(self.queues().take(&claim.queues, wanted));
            }
        }
        Ok(taken)
    }

    /// Waits until one of these queues may have work for [`Engine::claim`]. Call this before the claim that may find nothing, so that
    /// work that arrives in between is not missed.
    pub fn arrival<'a>(&'a self, queues: &'a [String]) -> impl Future<Output = ()> + 'a {
        let waiting = self.queues().wait(queues);
        waiting.arrived()
    }

    /// Reads ready rows of those queues whose rows may not all be in memory.
    pub(crate) async fn refill(&self, queues: &[String]) -> Result<usize, StoreError> {
        // Fewer rows of each queue when there are many queues: the read stays small.
        let limit = (REFILL / queues.len().max(1)).max(REFILL_LEAST);
        let prefixes: Vec<Row> = queues.iter().map(|queue| queue_rows(queue)).collect();
        let mut unknown = 0;
        for (queue, found) in queues.iter().zip(self.store().ready(&prefixes, limit).await?) {
            let complete = found.iter().all(|rows| rows.len() < limit);
            unknown += self.queues().refill(queue, &found.concat(), complete);
        }
        Ok(unknown)
    }
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
            // Another server was faster, or the job was cancelled.
            Err(EngineError::Refused(_) | EngineError::NoWorkflow { .. }) => refused += 1,
            Err(error) => failure = Some(error),
        }
    }
    match failure {
        Some(error) if leased.is_empty() => Err(error),
        _ => Ok((leased, refused)),
    }
}
