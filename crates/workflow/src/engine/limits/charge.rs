//! Acquires permits and units for dequeued jobs, and releases those of jobs that are not claimed.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;

use super::status::retry_delay;
use super::unit_counter::{LimitExhausted, Receipt, UnitCounter, UnitGrant, UnitRequest};
use super::unstarted::ChargedUnits;
use crate::codec::StoreError;
use crate::engine::actor::answer::Answer;
use crate::engine::actor::apply::new_token;
use crate::engine::claim::pending_leases::PendingLeases;
use crate::engine::context::error::EngineError;
use crate::engine::{CallClock, Engine};
use crate::graph::Limits;
use crate::model::{LeaseRef, Timestamp};
use crate::queue::LimitBlock;
use crate::queue::blocked_limits::limit_names::{concurrency_limit_name, limit_name};
use crate::queue::cache::DequeuedJob;
use crate::store::{PermitGrant, PermitRequest};

/// Time after which a limit is tried again whose state could not be read.
pub(super) const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Maximum time until a concurrency limit without free permits is tried again: notifications of
/// free permits may get lost, and the store may fail.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(15);

/// The block of an exhausted rate limit, from the answer to a request at time `requested_at`.
pub(super) fn rate_limit_block(exhausted: LimitExhausted, requested_at: Timestamp) -> LimitBlock {
    let until = requested_at
        + exhausted
            .retry_after
            .unwrap_or_else(|| retry_delay(exhausted.available_after));
    LimitBlock {
        until,
        capacity: None,
        window_ends_at: Some(requested_at + exhausted.available_after),
    }
}

/// The charge for jobs with equal limits.
#[derive(Debug)]
pub(in crate::engine) struct LimitCharge {
    limits: Arc<Limits>,
    /// Indexes of the jobs.
    jobs: Vec<usize>,
    leases: Vec<LeaseRef>,
    receipt: Option<Receipt>,
    /// The concurrency limits in which the first leases have permits, or may have, and how many
    /// leases.
    permits: Vec<(String, usize)>,
}

/// The answer of the store for a concurrency limit of a charge.
struct PermitAnswer {
    charge: usize,
    set: String,
    /// The name under which the limit is blocked.
    limit: Arc<str>,
    grant: Result<PermitGrant, StoreError>,
}

impl LimitCharge {
    fn new(limits: Arc<Limits>) -> Self {
        Self {
            limits,
            jobs: Vec::new(),
            leases: Vec::new(),
            receipt: None,
            permits: Vec::new(),
        }
    }

    /// The job whose queue and lane stand for all jobs of the charge, because their limits are
    /// equal.
    fn first<'t>(&self, dequeued: &'t [DequeuedJob]) -> &'t DequeuedJob {
        &dequeued[self.jobs[0]]
    }

    fn needs_units(&self) -> bool {
        self.limits.has_rate_limits() && !self.leases.is_empty()
    }

    /// The request for the units of all leases.
    fn unit_request(&self) -> UnitRequest {
        UnitRequest {
            limits: Arc::clone(&self.limits),
            jobs: self.leases.len() as u32,
        }
    }

    /// Refunds the units of the last `jobs` jobs, if units were charged.
    fn refund(&mut self, engine: &Engine, jobs: usize) {
        if let Some(receipt) = self.receipt.take() {
            let limits = Arc::clone(&self.limits);
            engine.refund(ChargedUnits { limits, receipt }, jobs as u32);
        }
    }

    /// Releases all permits and refunds all units: no request for a lease was sent.
    pub(in crate::engine) fn undo(&mut self, engine: &Engine) {
        engine.release_later(self.permits_after(0));
        self.refund(engine, self.leases.len());
    }

    /// Attaches the units to the leased jobs, for a refund if they do not reach their worker.
    /// Releases and refunds what was acquired for the others.
    pub(in crate::engine) fn settle(
        &mut self,
        engine: &Engine,
        answers: &mut [Result<Answer, EngineError>],
    ) {
        let mut unleased = Vec::new();
        for (&at, lease) in self.jobs.iter().zip(&self.leases) {
            match &mut answers[at] {
                Ok(answer) => {
                    for leased in &mut answer.leased {
                        let Some(receipt) = self.receipt.clone() else {
                            continue;
                        };
                        leased.undelivered.with_charge(ChargedUnits {
                            limits: Arc::clone(&self.limits),
                            receipt,
                        });
                    }
                }
                Err(_) => unleased.push(*lease),
            }
        }
        // Permits of leased jobs are released when their leases end.
        let permits = self
            .permits
            .iter()
            .flat_map(|(set, _)| unleased.iter().map(|lease| (set.clone(), *lease)));
        engine.release_later(permits.collect());
        self.refund(engine, unleased.len());
    }

    /// Removes and returns the permits of all leases but the first `number`.
    fn permits_after(&mut self, number: usize) -> Vec<(String, LeaseRef)> {
        let mut permits = Vec::new();
        for (set, held) in &mut self.permits {
            let others = self.leases.iter().take(*held).skip(number);
            permits.extend(others.map(|lease| (set.clone(), *lease)));
            *held = number.min(*held);
        }
        permits
    }
}

impl PendingLeases {
    /// Acquires the permits and units that the jobs need. Denied jobs return to their queues and
    /// wait there until their limit has room.
    pub(in crate::engine) async fn charge(&mut self, lease: Duration, clock: CallClock) {
        self.group_by_limits();
        if !self.charges.is_empty() {
            let release_count = self.engine.queues().return_count();
            self.acquire_permits(lease, clock, release_count).await;
            self.acquire_units(clock, release_count).await;
            self.requeue_denied();
        }
    }

    /// Groups the jobs by their limits.
    fn group_by_limits(&mut self) {
        let mut charge_by_key: HashMap<&str, usize> = HashMap::new();
        for (at, job) in self.jobs.iter().enumerate() {
            let key = &job.lane.limits;
            let charge = (!key.is_empty()).then(|| {
                let next = || {
                    self.charges
                        .push(LimitCharge::new(self.engine.queues().limits_of(job)));
                    self.charges.len() - 1
                };
                let charge = *charge_by_key.entry(&**key).or_insert_with(next);
                self.charges[charge].jobs.push(at);
                charge
            });
            self.tokens.push(lease_token(charge.is_some_and(|charge| {
                let limits = &self.charges[charge].limits;
                limits.concurrency_limits().next().is_some()
            })));
        }
        drop(charge_by_key);
        self.set_leases();
    }

    /// Sets the leases of each charge from its jobs and their tokens.
    fn set_leases(&mut self) {
        for charge in &mut self.charges {
            let lease = |&at: &usize| {
                let job = &self.jobs[at];
                LeaseRef {
                    workflow: job.workflow(),
                    job: job.job(),
                    token: self.tokens[at],
                }
            };
            charge.leases = charge.jobs.iter().map(lease).collect();
        }
    }

    /// Acquires permits of concurrency limits.
    async fn acquire_permits(&mut self, lease: Duration, clock: CallClock, release_count: u64) {
        let answers = self.request_permits(lease, clock.started_at()).await;
        let mut granted: Vec<usize> = self
            .charges
            .iter()
            .map(|charge| charge.jobs.len())
            .collect();
        let mut unknown = Vec::new();
        for answer in answers {
            let charge = &mut self.charges[answer.charge];
            let block_time = block_time(&self.engine, &answer.grant);
            let number = answer.grant.map_or_else(
                |error| {
                    tracing::warn!(set = answer.set, %error, "places under a limit of jobs could not be taken");
                    // The store may have granted them, so they are released in the background. If
                    // that fails, they expire.
                    unknown.extend(charge.leases.iter().map(|lease| (answer.set.clone(), *lease)));
                    0
                },
                |held| held.granted,
            );
            granted[answer.charge] = granted[answer.charge].min(number);
            charge.permits.push((answer.set, number));
            if let Some(after) = block_time {
                let block = LimitBlock {
                    until: clock.now() + after,
                    capacity: Some(1),
                    window_ends_at: None,
                };
                let job = self.charges[answer.charge].first(&self.jobs);
                self.block_limit(job, &answer.limit, block, release_count);
            }
        }
        self.engine.release_after_failure(unknown);
        for (charge, number) in granted.into_iter().enumerate() {
            self.truncate(charge, number);
        }
    }

    /// Requests permits of all concurrency limits from the store.
    async fn request_permits(&self, lease: Duration, now: Timestamp) -> Vec<PermitAnswer> {
        let policies = self.engine.policies();
        let mut requests = Vec::new();
        let mut limits = Vec::new();
        for (at, charge) in self.charges.iter().enumerate() {
            let DequeuedJob { queue, lane, .. } = charge.first(&self.jobs);
            for (set, own) in charge.limits.concurrency_limits() {
                let most = policies.lowest_concurrency(Some(queue), Some(&lane.handler), set, own);
                let leases = &charge.leases;
                requests.push(PermitRequest {
                    limit: set,
                    permits: most,
                    leases,
                });
                limits.push((at, concurrency_limit_name(set, own)));
            }
        }
        if requests.is_empty() {
            return Vec::new();
        }
        let server = self.engine.server_id();
        let grant = self
            .engine
            .store()
            .acquire_permits(&requests, server, now, lease)
            .await;
        let answers = limits.into_iter().zip(requests).zip(grant);
        answers
            .map(|(((charge, limit), request), grant)| PermitAnswer {
                charge,
                set: request.limit.to_owned(),
                limit,
                grant,
            })
            .collect()
    }

    /// Acquires units of rate limits.
    async fn acquire_units(&mut self, clock: CallClock, release_count: u64) {
        let charges: Vec<usize> = (0..self.charges.len())
            .filter(|&charge| self.charges[charge].needs_units())
            .collect();
        let Some(counter) = self
            .engine
            .unit_counter()
            .filter(|_| !charges.is_empty())
            .cloned()
        else {
            return;
        };
        let request = |&charge: &usize| self.charges[charge].unit_request();
        let requests = charges.iter().map(request);
        // A time before the request would unblock limits before their windows end, and all waiting
        // workers would retry without effect.
        let requested_at = clock.now();
        let granted = counter.acquire(requests.collect()).await;
        for (
            charge,
            UnitGrant {
                jobs,
                receipt,
                exhausted,
            },
        ) in charges.into_iter().zip(granted)
        {
            self.charges[charge].receipt = receipt;
            let charged = &self.charges[charge];
            if let Some(exhausted) = exhausted
                && let Some(limit) = charged.limits.as_slice().get(exhausted.limit_index)
            {
                let block = rate_limit_block(exhausted, requested_at);
                let job = charged.first(&self.jobs);
                self.block_limit(job, &limit_name(limit), block, release_count);
            }
            self.truncate(charge, jobs as usize);
        }
    }

    fn block_limit(
        &self,
        dequeued: &DequeuedJob,
        limit: &Arc<str>,
        block: LimitBlock,
        release_count: u64,
    ) {
        self.engine.queues().block(
            (&dequeued.queue, &dequeued.lane),
            limit,
            block,
            release_count,
        );
    }

    /// Releases the permits of all jobs of a charge but the first `number`. Units were not granted
    /// to the others.
    fn truncate(&mut self, charge: usize, number: usize) {
        let charge = &mut self.charges[charge];
        if number < charge.leases.len() {
            self.denied += charge.leases.len() - number;
            let permits = charge.permits_after(number);
            charge.leases.truncate(number);
            self.engine.release_later(permits);
        }
    }

    /// Returns the denied jobs to their queues.
    fn requeue_denied(&mut self) {
        if self.denied == 0 {
            return;
        }
        let mut keep = vec![true; self.jobs.len()];
        for charge in &mut self.charges {
            charge
                .jobs
                .drain(charge.leases.len()..)
                .for_each(|at| keep[at] = false);
        }
        // The new index of each job that is left.
        let mut next_index = 0;
        let new_indexes: Vec<usize> = keep
            .iter()
            .map(|&keep| {
                next_index += usize::from(keep);
                next_index.saturating_sub(1)
            })
            .collect();
        self.charges
            .iter_mut()
            .flat_map(|charge| &mut charge.jobs)
            .for_each(|at| *at = new_indexes[*at]);
        let mut kept = keep.iter();
        self.tokens.retain(|_| *kept.next().expect("one for each"));
        let mut kept = keep.iter();
        let queues = self.engine.queues();
        self.jobs.retain(|job| {
            let keep = *kept.next().expect("one for each");
            if !keep {
                queues.requeue(job);
            }
            keep
        });
    }
}

impl Engine {
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if tokio::runtime::Handle::try_current().is_ok() {
            self.core.tasks.spawn(task);
        }
    }

    pub(super) fn unit_counter(&self) -> Option<&Arc<dyn UnitCounter>> {
        self.core.threads[self.thread].units.as_ref()
    }
}

/// Whether the job of a lease has permits. Tokens of earlier versions have the bit at random.
pub(super) fn has_permits(token: u64) -> bool {
    token & 1 == 1
}

/// The time for which a concurrency limit is blocked after an answer of the store. `None` if
/// permits are left.
fn block_time(engine: &Engine, grant: &Result<PermitGrant, StoreError>) -> Option<Duration> {
    let Ok(grant) = grant else {
        return Some(RETRY_AFTER);
    };
    // A server that does not receive notifications of released permits must poll.
    let max_time = if engine.receives_notifications() {
        MAX_RETRY_AFTER
    } else {
        RETRY_AFTER
    };
    (grant.free == 0).then(|| grant.next_expiry.unwrap_or(RETRY_AFTER).min(max_time))
}

fn lease_token(with_permits: bool) -> u64 {
    // Without this bit the token could be 0, which means no lease.
    let token = new_token() | 2;
    if with_permits { token | 1 } else { token & !1 }
}
