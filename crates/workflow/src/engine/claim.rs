//! Calls of workers: claim, report, extend.

pub(crate) mod claimed;
mod inputs;
pub(crate) mod leases;
pub(crate) mod notes;
pub(crate) mod pending_claims;
mod refill;
mod remote;
pub(crate) mod report;
#[cfg(feature = "test-util")]
mod test_util;

use std::time::Duration;

use tokio::time::Instant;

use self::leases::LeasedBatch;
use self::pending_claims::PendingClaims;
use super::Engine;
use super::actor::answer::{Answer, LeasedJob};
use super::actor::request::Request;
use super::context::error::EngineError;
use crate::codec::StoreError;
use crate::machine::Lease;
use crate::model::workflow_state::WorkerName;
use crate::model::{LeaseRef, Partition, Timestamp, WorkflowId};
use crate::queue::cache::{DequeueRequest, DequeuedJob};
use crate::queue::{ClaimMode, ExcludedJobs, PartitionScope, WaitingClaim};

/// Number of ready rows that are read of each partition if no job is known.
const REFILL_ROWS: usize = 512;
/// Number of ready rows that are read of each partition after other servers claimed the known jobs:
/// enough to find the next ones.
pub(super) const REFRESH_ROWS: usize = 64;
/// Maximum number of reads in one claim after such refusals. Each refusal means that another server
/// got jobs, so the servers together make progress.
const MAX_REFRESHES: usize = 8;
/// Maximum number of attempts in one claim after limits had no capacity. Each attempt blocks more
/// keys.
const MAX_DENIALS: usize = 64;

/// Clock of one call. A call may wait for the store for long, and what a limiter answers then
/// counts from the current time.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) struct CallClock {
    started_at: Timestamp,
    started: Instant,
}

impl CallClock {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self {
            started_at: now,
            started: Instant::now(),
        }
    }

    /// Time at which the call began.
    pub(in crate::engine) fn started_at(self) -> Timestamp {
        self.started_at
    }

    /// Current time.
    pub(crate) fn now(self) -> Timestamp {
        self.started_at + self.started.elapsed()
    }
}

/// The jobs that a worker claims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The queues that the worker serves.
    pub queues: Vec<String>,
    /// Handlers that the worker can run. `None` if it runs all.
    pub handlers: Option<Vec<String>>,
    /// The name of the worker.
    pub worker: String,
    /// Maximum number of jobs.
    pub limit: usize,
    /// Duration of the lease: the worker must report or extend before its end.
    pub lease: Duration,
}

impl Engine {
    /// Leases ready jobs to a worker, the most urgent first, without reading their inputs:
    /// [`Engine::deliver`] does that, for which the caller may have to reserve memory first. The
    /// jobs of the leases in `except` are left out: the worker returned them and wants other ones.
    ///
    /// # Errors
    /// The store failed before any job was leased.
    ///
    /// # Cancellation
    /// When the future is dropped, leased jobs are returned to their queues at once.
    pub async fn lease_except(
        &self,
        claim: &Claim,
        except: &[LeaseRef],
        mode: ClaimMode,
        now: Timestamp,
    ) -> Result<LeasedBatch, EngineError> {
        Ok(LeasedBatch::from_leased(
            self.claim_with_retries(claim, &ExcludedJobs::from_leases(except), mode, now)
                .await?,
        ))
    }

    /// Leases jobs. If other servers have leased the known ones, reads the store until there are
    /// jobs or the store has none.
    async fn claim_with_retries(
        &self,
        claim: &Claim,
        except: &ExcludedJobs,
        mode: ClaimMode,
        now: Timestamp,
    ) -> Result<Vec<(WorkflowId, LeasedJob)>, EngineError> {
        self.queues().unblock_due(now);
        let clock = CallClock::new(now);
        let mut refreshed = 0;
        let mut denied = 0;
        loop {
            let attempt = self.try_claim(claim, except, mode, clock).await?;
            match attempt {
                ClaimAttempt { leased, .. } if !leased.is_empty() => return Ok(leased),
                ClaimAttempt {
                    refused: 0,
                    denied: 0,
                    ..
                } => return Ok(Vec::new()),
                // The exhausted limits are blocked now, so the next attempt gets jobs of other
                // keys.
                ClaimAttempt { refused: 0, .. } if denied < MAX_DENIALS => {
                    denied += 1;
                    if denied > 1 {
                        self.block_next_keys(&claim.queues, denied, clock).await;
                    }
                }
                _ if refreshed < MAX_REFRESHES => {
                    refreshed += 1;
                    self.refresh_queues(&claim.queues).await?;
                }
                _ => return Ok(Vec::new()),
            }
        }
    }

    /// Reads those queues again of which jobs were refused. Remote partitions are read only when
    /// they are needed.
    async fn refresh_queues(&self, queues: &[String]) -> Result<(), StoreError> {
        let (scope, partitions) = if self.queues().has_remote_partitions() {
            (PartitionScope::Local, self.local_partitions())
        } else {
            (PartitionScope::All, self.store().all_partitions().collect())
        };
        let incomplete = self
            .queues()
            .incomplete(queues, scope, ClaimMode::Immediate);
        self.refill_in(&incomplete, &partitions, REFRESH_ROWS)
            .await?;
        Ok(())
    }

    /// Dequeues jobs, acquires the units of their limits, and leases them.
    async fn try_claim(
        &self,
        claim: &Claim,
        except: &ExcludedJobs,
        mode: ClaimMode,
        clock: CallClock,
    ) -> Result<ClaimAttempt, EngineError> {
        let dequeued = self.dequeue(claim, except, mode).await?;
        // A claim that does not wait has just read the remote partitions itself.
        let waits = dequeued.jobs().is_empty() && mode == ClaimMode::LongPoll;
        let scope = if waits {
            PartitionScope::All
        } else {
            PartitionScope::Local
        };
        self.refill_in_background(&claim.queues, scope);
        if dequeued
            .jobs()
            .iter()
            .all(|dequeued| dequeued.lane.limits.is_empty())
        {
            return self.claim_dequeued(dequeued, claim, clock).await;
        }
        // Runs in its own task: if the caller leaves half way, units of limits must not stay
        // acquired without a lease.
        let engine = self.clone();
        let claim = claim.clone();
        let dequeued = dequeued.into_jobs();
        let leasing = async move {
            let dequeued = PendingClaims::new(engine.queues(), dequeued);
            engine.claim_dequeued(dequeued, &claim, clock).await
        };
        self.core
            .tasks
            .spawn(leasing)
            .await
            .unwrap_or(Err(EngineError::Closed))
    }

    async fn claim_dequeued(
        &self,
        mut dequeued: PendingClaims<'_>,
        claim: &Claim,
        clock: CallClock,
    ) -> Result<ClaimAttempt, EngineError> {
        let charge = self.charge(&mut dequeued, claim.lease, clock).await;
        let now = clock.started_at();
        let requests = claim_requests(dequeued.jobs(), charge.tokens(), claim, now);
        let ids: Vec<_> = dequeued.jobs().iter().map(DequeuedJob::workflow).collect();
        let submitted = dequeued.mark_sent();
        let charge = charge.mark_submitted();
        let mut answers = self.request_all(requests, now).await;
        submitted.resolve(&answers);
        let denied = charge.denied;
        let was_limited = charge.has_limits();
        charge.resolve(&mut answers);
        let (leased, refused) = split_leased(ids.into_iter().zip(answers))?;
        if was_limited && !leased.is_empty() {
            // The unblock of a limit woke one worker, whatever its capacity, so the next one is
            // woken here.
            self.queues().wake_next_claim(&claim.queues);
        }
        Ok(ClaimAttempt {
            leased,
            refused,
            denied,
        })
    }

    fn local_partitions(&self) -> Vec<Partition> {
        let membership = &self.core.context.membership;
        membership.local_partitions.iter().collect()
    }

    /// Dequeues jobs. If too few are known, the store is read before: local partitions first, and
    /// remote ones only if these have no job.
    async fn dequeue(
        &self,
        claim: &Claim,
        except: &ExcludedJobs,
        mode: ClaimMode,
    ) -> Result<PendingClaims<'_>, StoreError> {
        let request = DequeueRequest {
            queues: &claim.queues,
            handlers: claim.handlers.as_deref(),
            except,
            caller_thread: self.caller_thread(),
        };
        self.refill_lanes(&claim.queues).await?;
        // Created before the reads below: if a read fails or the caller leaves, the drop requeues
        // the jobs.
        let first = self.queues().dequeue(request, claim.limit);
        let mut dequeued = PendingClaims::new(self.queues(), first);
        if self.queues().has_remote_partitions() && dequeued.jobs().len() < claim.limit {
            if self
                .refill_incomplete(&claim.queues, PartitionScope::Local, mode)
                .await?
            {
                dequeued.fill(request, claim.limit);
            }
            if dequeued.jobs().is_empty() {
                self.claim_remote(claim.limit, request, &mut dequeued)
                    .await?;
            }
            if !dequeued.jobs().is_empty() {
                return Ok(dequeued);
            }
        }
        if dequeued.jobs().len() < claim.limit
            && self
                .refill_incomplete(&claim.queues, PartitionScope::All, mode)
                .await?
        {
            dequeued.fill(request, claim.limit);
        }
        Ok(dequeued)
    }

    /// Reads the next rows of those lanes of these queues that have no known jobs.
    async fn refill_lanes(&self, queues: &[String]) -> Result<(), StoreError> {
        let lanes = self.queues().lanes_to_refill(queues);
        if !lanes.is_empty() {
            self.refill_in(&lanes, &self.local_partitions(), REFILL_ROWS)
                .await?;
        }
        Ok(())
    }

    /// Reads the store for those queues of which jobs of a scope may be unknown. Returns whether
    /// there are such queues.
    async fn refill_incomplete(
        &self,
        queues: &[String],
        scope: PartitionScope,
        mode: ClaimMode,
    ) -> Result<bool, StoreError> {
        let incomplete = self.queues().incomplete(queues, scope, mode);
        if incomplete.is_empty() {
            return Ok(false);
        }
        let (partitions, row_limit) = match scope {
            PartitionScope::Local => (self.local_partitions(), REFILL_ROWS),
            // The local partitions were read before.
            PartitionScope::All if self.queues().has_remote_partitions() => {
                (self.remote_partitions(), REFRESH_ROWS)
            }
            PartitionScope::All => (self.store().all_partitions().collect(), REFILL_ROWS),
        };
        self.refill_for_claim(mode, &incomplete, &partitions, row_limit)
            .await?;
        Ok(true)
    }

    /// Waits until there may be jobs for [`Engine::lease_except`]. The call must precede the claim
    /// that may find nothing, so that work that arrives in between is not missed. Jobs that become ready at this server while
    /// the future is polled may arrive leased, by the write that makes them ready. If none is
    /// leased, there may be some to claim.
    ///
    /// # Cancellation
    /// When the future is dropped, leased jobs are returned to their queues at once.
    pub fn arrival_for<'a>(
        &'a self,
        claim: &'a Claim,
        except: &[LeaseRef],
    ) -> impl Future<Output = LeasedBatch> + use<'a> {
        let waiting_claim = WaitingClaim {
            worker: WorkerName::from(claim.worker.as_str()),
            lease: claim.lease,
            limit: claim.limit,
        };
        let waiting = self.queues().start_waiting(
            &claim.queues,
            claim.handlers.as_deref(),
            ExcludedJobs::from_leases(except),
            Some(waiting_claim),
        );
        async { LeasedBatch::from_leased(waiting.arrived().await) }
    }

    /// Adds jobs that are known here to leased ones, up to the limit of the claim.
    ///
    /// # Cancellation
    /// When the future is dropped, all of them are returned to their queues at once.
    pub async fn fill_up(
        &self,
        mut leases: LeasedBatch,
        claim: &Claim,
        except: &[LeaseRef],
        now: Timestamp,
    ) -> LeasedBatch {
        let limit = claim.limit.saturating_sub(leases.len());
        if limit > 0 && !leases.is_full() && self.queues().has_runnable(&claim.queues) {
            let more = self
                .claim_with_retries(
                    &Claim {
                        limit,
                        ..claim.clone()
                    },
                    &ExcludedJobs::from_leases(except),
                    ClaimMode::LongPoll,
                    now,
                )
                .await;
            // An error is dropped: the worker has jobs in any case, and its next claim reports the
            // error.
            leases.add(more.unwrap_or_default());
        }
        leases
    }
}

/// Returns the requests that lease these jobs to the worker of a claim, with these tokens.
fn claim_requests(
    jobs: &[DequeuedJob],
    tokens: &[u64],
    claim: &Claim,
    now: Timestamp,
) -> Vec<(WorkflowId, Request)> {
    let worker = WorkerName::from(claim.worker.as_str());
    let expires = now + claim.lease;
    let request = |(dequeued, &token): (&DequeuedJob, &u64)| {
        let lease = Lease {
            token,
            worker: worker.clone(),
            expires,
        };
        let job = dequeued.job();
        (dequeued.workflow(), Request::Claim { job, lease })
    };
    jobs.iter().zip(tokens).map(request).collect()
}

/// Result of one attempt to claim jobs.
struct ClaimAttempt {
    leased: Vec<(WorkflowId, LeasedJob)>,
    /// Number of jobs that were not ready any more.
    refused: usize,
    /// Number of jobs without capacity under their limits.
    denied: usize,
}

/// Returns the leased jobs, and the number of refused ones.
///
/// # Errors
/// No job was leased, and one attempt failed.
fn split_leased(
    answers: impl Iterator<Item = (WorkflowId, Result<Answer, EngineError>)>,
) -> Result<(Vec<(WorkflowId, LeasedJob)>, usize), EngineError> {
    let mut leased = Vec::new();
    let mut refused = 0;
    let mut failure = None;
    for (id, answer) in answers {
        match answer {
            Ok(answer) => leased.extend(answer.leased.into_iter().map(|leased| (id, leased))),
            // Another server was faster, or the job was cancelled, or its workflow cannot be read.
            // Other jobs may still be leased.
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
