//! The jobs of one attempt of a claim: dequeued, charged, and leased by their actors.

use super::{CallClock, Claim};
use crate::codec::StoreError;
use crate::engine::Engine;
use crate::engine::actor::answer::{Answer, LeasedJob};
use crate::engine::actor::request::Request;
use crate::engine::context::error::EngineError;
use crate::engine::limits::charge::LimitCharge;
use crate::machine::Lease;
use crate::model::workflow_state::WorkerName;
use crate::model::{Timestamp, WorkflowId};
use crate::queue::cache::{ClaimEnd, DequeueRequest, DequeuedJob};

/// Dequeued jobs, and the permits and units that `limits/charge.rs` acquires for them. Dropping it
/// undoes both: jobs return to their queues, permits are released, units are refunded. Once the
/// requests for the leases are sent, a drop undoes nothing, because the claims take place even if
/// the caller has left. A job that is leased and does not arrive returns by its
/// [`UndeliveredLease`].
///
/// [`UndeliveredLease`]: crate::engine::actor::assign::undelivered_lease::UndeliveredLease
#[derive(Debug)]
pub(in crate::engine) struct PendingLeases {
    pub(in crate::engine) engine: Engine,
    pub(in crate::engine) jobs: Vec<DequeuedJob>,
    /// Tokens of the leases, in the order of the jobs.
    pub(in crate::engine) tokens: Vec<u64>,
    pub(in crate::engine) charges: Vec<LimitCharge>,
    /// Number of jobs that a limit denied.
    pub(in crate::engine) denied: usize,
    submission: Submission,
}

/// Whether the requests for the leases were sent to the actors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Submission {
    NotSent,
    Sent,
}

/// Result of one attempt to lease jobs.
#[derive(Debug, Default)]
pub(super) struct ClaimAttempt {
    pub(super) leased: Vec<(WorkflowId, LeasedJob)>,
    /// Number of jobs that were not ready any more.
    pub(super) refused: usize,
    /// Number of jobs without capacity under their limits.
    pub(super) denied: usize,
}

impl PendingLeases {
    pub(super) fn new(engine: Engine) -> Self {
        Self {
            engine,
            jobs: Vec::new(),
            tokens: Vec::new(),
            charges: Vec::new(),
            denied: 0,
            submission: Submission::NotSent,
        }
    }

    /// Dequeues known jobs until there are `limit`.
    pub(super) fn fill(&mut self, request: DequeueRequest<'_>, limit: usize) {
        let missing = limit.saturating_sub(self.jobs.len());
        self.jobs
            .extend(self.engine.queues().dequeue(request, missing));
    }

    /// Leases the jobs to the worker of a claim. The permits and units of their limits are acquired
    /// before, so that a crash in between wastes some and exceeds no limit.
    ///
    /// # Errors
    /// No job was leased, and one request failed.
    pub(super) async fn lease(
        self,
        claim: &Claim,
        clock: CallClock,
    ) -> Result<ClaimAttempt, EngineError> {
        if self.jobs.iter().all(|job| job.lane.limits.is_empty()) {
            return self.charge_and_lease(claim, clock).await;
        }
        // Runs in its own task: if the caller leaves half way, units of limits must not stay
        // acquired without a lease.
        let tasks = self.engine.core.tasks.clone();
        let claim = claim.clone();
        tasks
            .spawn(async move { self.charge_and_lease(&claim, clock).await })
            .await
            .unwrap_or(Err(EngineError::Closed))
    }

    async fn charge_and_lease(
        mut self,
        claim: &Claim,
        clock: CallClock,
    ) -> Result<ClaimAttempt, EngineError> {
        self.charge(claim.lease, clock).await;
        let now = clock.started_at();
        let requests = self.requests(claim, now);
        self.submission = Submission::Sent;
        let answers = self.engine.request_all(requests, now).await;
        let is_limited = !self.charges.is_empty();
        let engine = self.engine.clone();
        let attempt = self.resolve(answers)?;
        if is_limited && !attempt.leased.is_empty() {
            // The unblock of a limit woke one worker, whatever its capacity, so the next one is
            // woken here.
            engine.queues().wake_next_claim(&claim.queues);
        }
        Ok(attempt)
    }

    /// The requests that lease the jobs.
    fn requests(&self, claim: &Claim, now: Timestamp) -> Vec<(WorkflowId, Request)> {
        let worker = WorkerName::from(claim.worker.as_str());
        let request = |(dequeued, &token): (&DequeuedJob, &u64)| {
            let lease = Lease {
                token,
                worker: worker.clone(),
                expires: now + claim.lease,
            };
            let job = dequeued.job();
            (dequeued.workflow(), Request::Claim { job, lease })
        };
        self.jobs.iter().zip(&self.tokens).map(request).collect()
    }

    /// Applies the answers to the queues and limits. Returns the leased jobs.
    fn resolve(
        mut self,
        mut answers: Vec<Result<Answer, EngineError>>,
    ) -> Result<ClaimAttempt, EngineError> {
        for charge in &mut self.charges {
            charge.settle(&self.engine, &mut answers);
        }
        let mut attempt = ClaimAttempt {
            denied: self.denied,
            ..ClaimAttempt::default()
        };
        let mut failure = None;
        for (job, answer) in std::mem::take(&mut self.jobs).iter().zip(answers) {
            self.finish_claim(job, &answer);
            match answer {
                Ok(answer) => {
                    let leased = answer.leased.into_iter();
                    attempt
                        .leased
                        .extend(leased.map(|leased| (job.workflow(), leased)));
                }
                // Another server was faster, or the job was cancelled, or its workflow cannot be
                // read. Other jobs may still be leased.
                Err(
                    EngineError::Refused(_)
                    | EngineError::NoWorkflow { .. }
                    | EngineError::NoJob { .. }
                    | EngineError::Store(StoreError::Corrupt { .. }),
                ) => attempt.refused += 1,
                Err(error) => failure = Some(error),
            }
        }
        match failure {
            Some(error) if attempt.leased.is_empty() => Err(error),
            _ => Ok(attempt),
        }
    }

    /// Applies the answer to a request to the queue of its job.
    fn finish_claim(&self, job: &DequeuedJob, answer: &Result<Answer, EngineError>) {
        let queues = self.engine.queues();
        match answer {
            Ok(_) => queues.finish_claim(job, ClaimEnd::Leased),
            // The job was not ready any more, and the server that changed it removes the row.
            Err(
                EngineError::NoWorkflow { .. }
                | EngineError::NoJob { .. }
                | EngineError::Refused(_),
            ) => {
                queues.finish_claim(job, ClaimEnd::Unknown);
                queues.record_orphan(job);
            }
            // Nothing was written, and the store is not the reason: other waiting workers may get
            // the job at once.
            Err(EngineError::Overloaded | EngineError::Contended { .. } | EngineError::Closed) => {
                queues.requeue(job)
            }
            Err(EngineError::Store(error @ StoreError::Corrupt { .. })) => {
                queues.finish_claim(job, ClaimEnd::Unknown);
                queues.quarantine_unreadable(job.workflow(), error);
            }
            // The next sweep wakes a waiting worker. To wake them here would make one after the
            // other fail while the store fails.
            Err(EngineError::Store(_)) => queues.finish_claim(job, ClaimEnd::Failed),
            Err(_) => queues.finish_claim(job, ClaimEnd::Unknown),
        }
    }
}

impl Drop for PendingLeases {
    fn drop(&mut self) {
        let queues = self.engine.queues();
        match self.submission {
            Submission::NotSent => {
                self.jobs.iter().for_each(|job| queues.requeue(job));
                for charge in &mut self.charges {
                    charge.undo(&self.engine);
                }
            }
            Submission::Sent => self
                .jobs
                .iter()
                .for_each(|job| queues.finish_claim(job, ClaimEnd::Unknown)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::engine::actor::request::StartMode;
    use crate::engine::{EngineOptions, NewWorkflow};
    use crate::graph::{ConcurrencyScope, Definition, Graph, JobDefinition, LimitDefinition};
    use crate::queue::ExcludedJobs;
    use crate::store::{SimulatedStore, Store};

    const LEASE: Duration = Duration::from_secs(30);

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_micros((1_795_000_000 + seconds) * 1_000_000)
    }

    /// Two jobs of which one may run at a time.
    async fn engine_with_limited_jobs() -> Engine {
        let store = Store::Simulated(SimulatedStore::new(2));
        let engine = Engine::start(store, EngineOptions::default())
            .await
            .unwrap();
        let limit = LimitDefinition::Concurrency {
            most: 1,
            of: ConcurrencyScope::All,
            entries: vec![("api".to_owned(), "one".to_owned())],
        };
        let job = |name| JobDefinition {
            limits: vec![limit.clone()],
            ..JobDefinition::new(name, "Handler")
        };
        let definition = Definition {
            name: "test".to_owned(),
            jobs: vec![job("a"), job("b")],
            ..Definition::default()
        };
        let new = NewWorkflow {
            graph: Graph::build(definition).unwrap(),
            start: StartMode::Now,
            created_at: None,
        };
        engine.create(vec![new], at(0)).await.remove(0).unwrap();
        engine
    }

    #[tokio::test]
    async fn what_is_dropped_before_it_is_sent_is_undone() {
        let engine = engine_with_limited_jobs().await;
        let queues = ["default".to_owned()];
        let request = DequeueRequest {
            queues: &queues,
            handlers: None,
            except: &ExcludedJobs::default(),
        };
        let dequeued = |engine: &Engine| {
            let mut pending = PendingLeases::new(engine.clone());
            pending.fill(request, 2);
            pending
        };
        let untouched = dequeued(&engine);
        assert_eq!(untouched.jobs.len(), 2);
        assert!(dequeued(&engine).jobs.is_empty(), "both are being claimed");
        drop(untouched);
        let mut charged = dequeued(&engine);
        assert_eq!(charged.jobs.len(), 2, "both are back");
        charged.charge(LEASE, CallClock::new(at(1))).await;
        assert_eq!((charged.jobs.len(), charged.denied), (1, 1));
        drop(charged);
        let claim = Claim {
            queues: queues.to_vec(),
            handlers: None,
            worker: "w".to_owned(),
            limit: 2,
            lease: LEASE,
        };
        // The permit is released in a task.
        for _ in 0..100 {
            let pending = dequeued(&engine);
            let attempt = pending.lease(&claim, CallClock::new(at(2))).await.unwrap();
            if attempt.leased.len() == 1 {
                return;
            }
            tokio::task::yield_now().await;
        }
        panic!("the permit is not free");
    }
}
