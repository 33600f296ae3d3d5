//! Calls of workers: claim, report, extend.

pub(crate) mod claimed;
mod inputs;
pub(crate) mod leases;
pub(crate) mod notes;
pub(in crate::engine) mod pending_leases;
mod refill;
pub(crate) mod report;
#[cfg(feature = "test-util")]
mod test_util;

use std::time::Duration;

use tokio::time::Instant;

use self::leases::LeasedBatch;
use self::pending_leases::PendingLeases;
use super::Engine;
use super::actor::answer::LeasedJob;
use super::context::error::EngineError;
use crate::codec::StoreError;
use crate::model::workflow_state::WorkerName;
use crate::model::{LeaseRef, Partition, Timestamp, WorkflowId};
use crate::queue::cache::DequeueRequest;
use crate::queue::{ClaimMode, ExcludedJobs, PartitionScope, Reach, RefillDepth, WaitingClaim};

/// Number of ready rows that are read of each own partition if too few jobs are known.
const REFILL_ROWS: usize = 512;
/// Number of ready rows that are read of each partition if only the next jobs are needed: of other
/// servers' partitions, and for a claim that waits.
pub(super) const REFRESH_ROWS: usize = 64;
/// Maximum number of refusals after which a claim tries again. Mostly another server leased the
/// jobs, so the servers together make progress.
const MAX_REFUSALS: usize = 8;
/// Maximum number of denials after which a claim tries again. Each blocks more limits.
const MAX_DENIALS: usize = 64;
/// Number of partitions of other servers that are read before all of them. Servers without jobs
/// would otherwise compete for the same ones.
const FEW_PARTITIONS: usize = 3;

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
            self.claim_jobs(claim, &ExcludedJobs::from_leases(except), mode, now)
                .await?,
        ))
    }

    /// Leases ready jobs to a worker, in three steps (ARCHITECTURE.md, "How servers hand out jobs").
    async fn claim_jobs(
        &self,
        claim: &Claim,
        except: &ExcludedJobs,
        mode: ClaimMode,
        now: Timestamp,
    ) -> Result<Vec<(WorkflowId, LeasedJob)>, EngineError> {
        let clock = CallClock::new(now);
        self.queues().unblock_due(now);
        let mut refusals = 0;
        let mut denials = 0;
        loop {
            // 1. Take jobs that this server knows, or else reads from the store.
            let pending = self.find_jobs(claim, except, mode).await?;
            if pending.jobs.is_empty() {
                break;
            }
            // 2. Acquire the permits and units of their limits, and then write their leases. Limits
            // deny jobs. Jobs that another server was faster to lease are refused: their permits
            // are released and their units refunded.
            let attempt = pending.lease(claim, clock).await?;
            if !attempt.leased.is_empty() {
                return Ok(attempt.leased);
            }
            // 3. Otherwise try other jobs. The lanes of refused jobs are forgotten by now, so they
            // are read again; after a second refusal the whole queues are. Denied jobs wait until
            // their limit has capacity.
            if attempt.refused > 0 && refusals < MAX_REFUSALS {
                refusals += 1;
                if refusals > 1 {
                    self.queues().forget_all(&claim.queues);
                }
            } else if attempt.denied > 0 && denials < MAX_DENIALS {
                denials += 1;
                if denials > 1 {
                    self.block_next_keys(&claim.queues, denials, clock).await;
                }
            } else {
                break;
            }
        }
        Ok(Vec::new())
    }

    /// Takes known jobs. Lanes without known local jobs are read before. If there are too few jobs,
    /// reads the own partitions, and without any job a few others and then the rest.
    async fn find_jobs(
        &self,
        claim: &Claim,
        except: &ExcludedJobs,
        mode: ClaimMode,
    ) -> Result<PendingLeases, StoreError> {
        let request = DequeueRequest {
            queues: &claim.queues,
            handlers: claim.handlers.as_deref(),
            except,
        };
        let empty_lanes = self.queues().lanes_to_refill(&claim.queues);
        if !empty_lanes.is_empty() {
            let own = self.partitions_in(Reach::Own);
            self.refill(&empty_lanes, &own, REFILL_ROWS, RefillDepth::All)
                .await?;
        }
        // If a read below fails or the caller leaves, dropping this returns the jobs to their
        // queues.
        let mut pending = PendingLeases::new(self.clone());
        pending.fill(request, claim.limit);
        for reach in [Reach::Own, Reach::Few, Reach::Others] {
            // Jobs of other servers are left to them while there are any here.
            let (enough, row_limit) = match reach {
                Reach::Own => (claim.limit, REFILL_ROWS),
                Reach::Few | Reach::Others => (1, REFRESH_ROWS),
            };
            if pending.jobs.len() >= enough {
                break;
            }
            match self
                .read_unknown(&claim.queues, reach, mode, row_limit)
                .await
            {
                Ok(true) => pending.fill(request, claim.limit),
                Ok(false) => {}
                Err(error) if pending.jobs.is_empty() => return Err(error),
                Err(_) => break,
            }
        }
        // Unknown jobs of other servers make a background refill due only if the claim will wait.
        let waits = pending.jobs.is_empty() && mode == ClaimMode::LongPoll;
        let scope = if waits {
            PartitionScope::All
        } else {
            PartitionScope::Local
        };
        self.refill_in_background(&claim.queues, scope);
        Ok(pending)
    }

    /// Reads what the store may have of these queues that is not known here. Returns whether there
    /// was anything to read.
    async fn read_unknown(
        &self,
        queues: &[String],
        reach: Reach,
        mode: ClaimMode,
        row_limit: usize,
    ) -> Result<bool, StoreError> {
        if reach != Reach::Own && !self.queues().has_remote_partitions() {
            return Ok(false);
        }
        let unknown = self.queues().incomplete(queues, reach, mode);
        if unknown.is_empty() {
            return Ok(false);
        }
        let partitions = self.partitions_in(reach);
        let (whole, lanes): (Vec<_>, Vec<_>) = unknown
            .into_iter()
            .partition(|target| target.lanes.is_none());
        self.refill(&lanes, &partitions, row_limit, RefillDepth::All)
            .await?;
        // A claim that waits leaves long queues to a background refill.
        let (row_limit, depth) = match mode {
            ClaimMode::Immediate => (row_limit, RefillDepth::All),
            ClaimMode::LongPoll => (REFRESH_ROWS, RefillDepth::First),
        };
        self.refill(&whole, &partitions, row_limit, depth).await?;
        Ok(true)
    }

    /// Returns the partitions in reach.
    pub(in crate::engine) fn partitions_in(&self, reach: Reach) -> Vec<Partition> {
        let own = &self.core.context.membership.local_partitions;
        let mut partitions: Vec<Partition> = self
            .store()
            .all_partitions()
            .filter(|partition| own.contains(*partition) == (reach == Reach::Own))
            .collect();
        if reach == Reach::Few {
            fastrand::shuffle(&mut partitions);
            partitions.truncate(FEW_PARTITIONS);
        }
        partitions
    }

    /// Waits until there may be jobs for [`Engine::lease_except`]. The call must precede the claim
    /// that may find nothing, so that work that arrives in between is not missed. Jobs that become
    /// ready at this server while the future is polled may arrive leased, by the write that makes
    /// them ready. If none is leased, there may be some to claim.
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
                .claim_jobs(
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
