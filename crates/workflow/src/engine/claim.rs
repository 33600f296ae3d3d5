//! What workers do: claim, report, extend.

pub(super) mod inputs;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use self::inputs::Input;
use super::Engine;
use super::desk::play::{Answer, HandOver, Leased, Request, new_token};
use super::error::EngineError;
use super::queues::{Known, Taken};
use crate::graph::Graph;
use crate::id::{InvalidId, JobIndex, WorkflowId};
use crate::record::rows::{Row, queue_rows};
use crate::state::{JobState, Status};
use crate::store::StoreError;
use crate::time::Timestamp;
use crate::transition::{Lease, Outcome};

/// Ready rows of each partition that are read at once when memory has none.
const REFILL: usize = 512;
/// And of each queue, when many are asked for.
const REFILL_LEAST: usize = 32;

/// What a worker would like to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Queues that it serves.
    pub queues: Vec<String>,
    /// Who it is.
    pub worker: String,
    /// How many jobs at most.
    pub limit: usize,
    /// How long it has before it must report or extend.
    pub lease: Duration,
}

/// Names a lease; as text, all that a worker must give back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LeaseRef {
    /// The workflow.
    pub workflow: WorkflowId,
    /// The job in it.
    pub job: JobIndex,
    /// Which of the job's leases.
    pub token: u64,
}

/// A job that a worker has, and all it needs to run it.
#[derive(Debug, Clone)]
pub struct Claimed {
    /// What to report with.
    pub lease: LeaseRef,
    /// When the lease ends unless it is extended.
    pub expires: Timestamp,
    /// Which attempt, from 1.
    pub attempt: u16,
    /// What the parents returned, without those that returned nothing.
    pub inputs: Vec<Input>,
    /// Parents that returned more than fits; what they returned must be read by itself.
    pub omitted: Vec<JobIndex>,
    pub(super) graph: Arc<Graph>,
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Whose.
    pub lease: LeaseRef,
    /// How.
    pub outcome: Outcome,
}

/// What became of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reported {
    /// What the job is doing now.
    pub job: JobState,
    /// What the workflow is doing now.
    pub workflow: Status,
    /// The same report came before.
    pub already: bool,
}

/// A lease to extend, and until when.
pub type Extension = (LeaseRef, Timestamp);

impl Claimed {
    /// The graph that the job is part of.
    #[must_use]
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// What the definition says of the job.
    #[must_use]
    pub fn job(&self) -> &crate::graph::GraphJob {
        &self.graph.jobs[self.lease.job.index()]
    }
}

impl fmt::Display for LeaseRef {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}-{}-{:016x}", self.workflow, self.job, self.token)
    }
}

impl FromStr for LeaseRef {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let invalid = || InvalidId { text: text.chars().take(60).collect() };
        let mut parts = text.splitn(3, '-');
        let mut part = || parts.next().ok_or_else(invalid);
        let workflow = part()?.parse()?;
        let job = JobIndex(part()?.parse().map_err(|_| invalid())?);
        let token = u64::from_str_radix(part()?, 16).map_err(|_| invalid())?;
        Ok(Self { workflow, job, token })
    }
}

impl Engine {
    /// Gives a worker ready jobs, the most urgent first; none when there are none.
    ///
    /// # Errors
    /// The store failed before any job was taken.
    ///
    /// # Cancellation
    /// When the future is dropped, jobs that were taken are given back at once.
    pub async fn claim(&self, claim: &Claim, now: Timestamp) -> Result<Vec<Claimed>, EngineError> {
        let (leased, refused) = self.lease(claim, now).await?;
        // What is known here may be late. Then the store is asked, but only once: others may go on being faster.
        let leased = if leased.is_empty() && refused > 0 { self.lease(claim, now).await?.0 } else { leased };
        self.with_inputs(leased).await
    }

    /// Leases jobs, and says how many were not there any more.
    async fn lease(&self, claim: &Claim, now: Timestamp) -> Result<(Vec<(WorkflowId, Leased)>, usize), EngineError> {
        // Held from the first: the read below may fail, or the caller leave while it goes on.
        let first = self.queues().take(&claim.queues, claim.limit);
        let mut taken = Settling { engine: self, taken: first, asked: Asked::NotYet };
        if taken.taken.len() < claim.limit {
            let incomplete = self.queues().incomplete(&claim.queues);
            if !incomplete.is_empty() {
                self.refill(&incomplete).await?;
                let wanted = claim.limit - taken.taken.len();
                taken.taken.extend(self.queues().take(&claim.queues, wanted));
            }
        }
        taken.asked = Asked::Yes;
        let requests = taken.taken.iter().map(|taken| {
            let lease = Lease { token: new_token(), worker: claim.worker.as_str().into(), expires: now + claim.lease };
            (taken.workflow(), Request::Claim { job: taken.job(), lease })
        });
        let ids: Vec<WorkflowId> = taken.taken.iter().map(Taken::workflow).collect();
        let answers = self.ask_all(requests.collect(), now).await;
        let (mut leased, mut refused) = (Vec::new(), 0);
        let mut failure = None;
        for (id, answer) in ids.into_iter().zip(taken.settle(answers)) {
            match answer {
                Ok(answer) => leased.extend(answer.leased.into_iter().map(|leased| (id, leased))),
                // Another server was faster, or it was cancelled.
                Err(EngineError::Refused(_) | EngineError::NoWorkflow { .. }) => refused += 1,
                Err(error) => failure = Some(error),
            }
        }
        match failure {
            Some(error) if leased.is_empty() => Err(error),
            _ => Ok((leased, refused)),
        }
    }

    /// Waits until one of these queues may have work for [`Engine::claim`]. Start to wait before the claim that finds nothing: work
    /// that comes in between is then not missed.
    pub fn arrival<'a>(&'a self, queues: &'a [String]) -> impl Future<Output = ()> + 'a {
        let waiting = self.queues().wait(queues);
        waiting.arrived()
    }

    /// Takes reports, each for itself, and gives the worker more jobs: first those that became ready by its reports, without a detour
    /// through the queue, then others.
    ///
    /// # Cancellation
    /// When the future is dropped, reports may have been taken; jobs that were leased are given back at once.
    pub async fn report(
        &self,
        reports: Vec<Report>,
        then: Option<&Claim>,
        now: Timestamp,
    ) -> (Vec<Result<Reported, EngineError>>, Result<Vec<Claimed>, EngineError>) {
        let hand_over = then.map(|claim| {
            Arc::new(HandOver {
                queues: claim.queues.clone(),
                worker: claim.worker.as_str().into(),
                lease: claim.lease,
                left: AtomicUsize::new(claim.limit),
            })
        });
        let requests = reports.into_iter().map(|Report { lease, outcome }| {
            let LeaseRef { workflow, job, token } = lease;
            (workflow, Request::Report { job, token, outcome, hand_over: hand_over.clone() })
        });
        let requests: Vec<_> = requests.collect();
        let ids: Vec<WorkflowId> = requests.iter().map(|(id, _)| *id).collect();
        let mut leased = Vec::new();
        let mut reported = Vec::with_capacity(ids.len());
        for (id, answer) in ids.into_iter().zip(self.ask_all(requests, now).await) {
            reported.push(answer.map(|answer| {
                leased.extend(answer.leased.into_iter().map(|leased| (id, leased)));
                Reported {
                    job: answer.state.expect("a report answers with the job's state"),
                    workflow: answer.status.expect("a report answers with the status"),
                    already: answer.already,
                }
            }));
        }
        let claimed = self.claimed_after(leased, then.zip(hand_over), now).await;
        (reported, claimed)
    }

    async fn claimed_after(
        &self,
        leased: Vec<(WorkflowId, Leased)>,
        then: Option<(&Claim, Arc<HandOver>)>,
        now: Timestamp,
    ) -> Result<Vec<Claimed>, EngineError> {
        let Some((claim, hand_over)) = then else { return Ok(Vec::new()) };
        let mut claimed = self.with_inputs(leased).await?;
        let limit = hand_over.left.load(Relaxed);
        if limit > 0 {
            let more = self.claim(&Claim { limit, ..claim.clone() }, now).await;
            match more {
                Ok(more) => claimed.extend(more),
                Err(error) if claimed.is_empty() => return Err(error),
                Err(_) => {}
            }
        }
        Ok(claimed)
    }

    /// Extends leases, each for itself.
    pub async fn extend(&self, extensions: Vec<Extension>, now: Timestamp) -> Vec<Result<(), EngineError>> {
        let requests = extensions.into_iter().map(|(lease, expires)| {
            let LeaseRef { workflow, job, token } = lease;
            (workflow, Request::Extend { job, token, expires })
        });
        let answers = self.ask_all(requests.collect(), now).await;
        answers.into_iter().map(|answer| answer.map(|_| ())).collect()
    }

    /// Reads ready rows of queues of which memory may not have all.
    pub(crate) async fn refill(&self, queues: &[String]) -> Result<usize, StoreError> {
        // Few of many or many of few: what is read at once stays small.
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

/// Jobs that were taken out of the queues; whatever happens, the queues hear how it ended.
struct Settling<'a> {
    engine: &'a Engine,
    taken: Vec<Taken>,
    asked: Asked,
}

/// Whether the desks were asked for the jobs: then they are answered for, even if nobody hears it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    NotYet,
    Yes,
}

impl Settling<'_> {
    fn settle(mut self, answers: Vec<Result<Answer, EngineError>>) -> Vec<Result<Answer, EngineError>> {
        for (taken, answer) in std::mem::take(&mut self.taken).iter().zip(&answers) {
            let known = match answer {
                Ok(_) => Known::Yes,
                // What is known here was late, or was not written for certain.
                Err(_) => Known::No,
            };
            self.engine.queues().settle(taken, known);
        }
        answers
    }
}

impl Drop for Settling<'_> {
    fn drop(&mut self) {
        let queues = self.engine.queues();
        self.taken.iter().for_each(|taken| match self.asked {
            Asked::NotYet => queues.put_back(taken),
            Asked::Yes => queues.settle(taken, Known::No),
        });
    }
}
