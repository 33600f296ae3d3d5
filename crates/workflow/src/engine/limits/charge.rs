//! Acquires permits and units for dequeued jobs, and releases those of jobs that are not claimed.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;

use super::status::patience;
use super::unbegun::Charged;
use super::unit_counter::{LimitExhausted, Receipt, UnitGrant, UnitRequest, Units};
use super::{name_of, name_of_set};
use crate::codec::lease::LeaseRef;
use crate::engine::Engine;
use crate::engine::actor::answer::Answer;
use crate::engine::actor::apply::new_token;
use crate::engine::claim::call_clock::CallClock;
use crate::engine::claim::pending_claims::PendingClaims;
use crate::engine::error::EngineError;
use crate::engine::queues::DequeuedJob;
use crate::engine::queues::blocked_limits::LimitBlock;
use crate::graph::limits::{Limit, Limits};
use crate::store::error::StoreError;
use crate::store::permits::{PermitGrant, PermitRequest};
use crate::time::Timestamp;

/// Time after which a limit is tried again whose state could not be read.
pub(super) const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Maximum time until a concurrency limit without free permits is tried again: notifications of
/// free permits may get lost, and the store may fail.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(15);

/// The block of an exhausted rate limit, from the answer to a request at time `requested_at`.
pub(super) fn without_units(no_room: LimitExhausted, asked: Timestamp) -> LimitBlock {
    let until = asked + no_room.again.unwrap_or_else(|| patience(no_room.after));
    LimitBlock {
        until,
        room: None,
        turns_at: Some(asked + no_room.after),
    }
}

/// The permits and units that were acquired for jobs.
#[derive(Debug)]
pub(in crate::engine) struct Charge {
    engine: Engine,
    /// The tokens of the leases, in the order of the jobs.
    tokens: Vec<u64>,
    parts: Vec<LimitCharge>,
    /// Number of jobs that a limit denied.
    pub(in crate::engine) denied: usize,
    asked: Submission,
}

/// Whether the claims were sent to the partition actors. The jobs may then be leased although the
/// caller has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Submission {
    NotYet,
    Yes,
}

/// The charge for jobs with equal limits.
#[derive(Debug)]
struct LimitCharge {
    limits: Arc<Limits>,
    /// Indexes of the jobs.
    jobs: Vec<usize>,
    leases: Vec<LeaseRef>,
    receipt: Option<Receipt>,
    /// The concurrency limits in which the first leases have permits, or may have, and how many
    /// leases.
    held: Vec<(String, usize)>,
}

/// The answer of the store for a concurrency limit of a charge.
struct SetAnswer {
    part: usize,
    set: String,
    /// The name under which the limit is blocked.
    limit: Arc<str>,
    held: Result<PermitGrant, StoreError>,
}

impl LimitCharge {
    fn new(limits: Arc<Limits>) -> Self {
        Self {
            limits,
            jobs: Vec::new(),
            leases: Vec::new(),
            receipt: None,
            held: Vec::new(),
        }
    }

    fn sets(&self) -> impl Iterator<Item = (&String, u32)> {
        self.limits.each().iter().filter_map(|limit| match limit {
            Limit::Concurrency { most, name } => Some((name, *most)),
            Limit::Units { .. } => None,
        })
    }

    fn has_sets(&self) -> bool {
        self.sets().next().is_some()
    }

    /// The job whose queue and lane stand for all jobs of the charge, because their limits are
    /// equal.
    fn first<'t>(&self, taken: &'t [DequeuedJob]) -> &'t DequeuedJob {
        &taken[self.jobs[0]]
    }

    fn has_units(&self) -> bool {
        self.limits
            .each()
            .iter()
            .any(|limit| matches!(limit, Limit::Units { .. }))
    }

    /// Removes and returns the permits of all leases but the first `number`.
    fn places_after(&mut self, number: usize) -> Vec<(String, LeaseRef)> {
        let mut places = Vec::new();
        for (set, held) in &mut self.held {
            let others = self.leases.iter().take(*held).skip(number);
            places.extend(others.map(|lease| (set.clone(), *lease)));
            *held = number.min(*held);
        }
        places
    }
}

impl Engine {
    /// Acquires the permits and units that these jobs need. Denied jobs return to their queues and
    /// wait there until their limit has room.
    pub(in crate::engine) async fn charge(
        &self,
        taken: &mut PendingClaims<'_>,
        lease: Duration,
        told: CallClock,
    ) -> Charge {
        let mut charge = Charge {
            engine: self.clone(),
            tokens: Vec::new(),
            parts: Vec::new(),
            denied: 0,
            asked: Submission::NotYet,
        };
        charge.begin(taken.jobs());
        if !charge.parts.is_empty() {
            let asked = self.queues().returned();
            charge
                .acquire_permits(taken.jobs(), lease, told, asked)
                .await;
            charge.take_units(taken.jobs(), told, asked).await;
            charge.leave_others(taken);
        }
        charge
    }

    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if tokio::runtime::Handle::try_current().is_ok() {
            self.core.tasks.spawn(task);
        }
    }

    pub(super) fn units(&self) -> Option<&Arc<dyn Units>> {
        self.core.threads[self.thread].units.as_ref()
    }
}

/// Whether the job of a lease has permits. Tokens of earlier versions have the bit at random.
pub(super) fn has_places(token: u64) -> bool {
    token & 1 == 1
}

/// The time for which a concurrency limit is blocked after an answer of the store. `None` if
/// permits are left.
fn closed_for(engine: &Engine, held: &Result<PermitGrant, StoreError>) -> Option<Duration> {
    let Ok(held) = held else {
        return Some(RETRY_AFTER);
    };
    // A server that does not receive notifications of released permits must poll.
    let longest = if engine.receives_releases() {
        MAX_RETRY_AFTER
    } else {
        RETRY_AFTER
    };
    (held.free == 0).then(|| held.next.unwrap_or(RETRY_AFTER).min(longest))
}

fn token(places: bool) -> u64 {
    // Without this bit the token could be 0, which means no lease.
    let token = new_token() | 2;
    if places { token | 1 } else { token & !1 }
}

impl Charge {
    pub(in crate::engine) fn tokens(&self) -> &[u64] {
        &self.tokens
    }

    /// Marks the claims as sent to the partition actors.
    pub(in crate::engine) fn asked(mut self) -> Self {
        self.asked = Submission::Yes;
        self
    }

    /// Groups the jobs by their limits.
    fn begin(&mut self, taken: &[DequeuedJob]) {
        let mut places: HashMap<&str, usize> = HashMap::new();
        for (at, job) in taken.iter().enumerate() {
            let key = &job.lane.limits;
            let part = (!key.is_empty()).then(|| {
                let next = || {
                    self.parts
                        .push(LimitCharge::new(self.engine.queues().limits_of(job)));
                    self.parts.len() - 1
                };
                let part = *places.entry(&**key).or_insert_with(next);
                self.parts[part].jobs.push(at);
                part
            });
            self.tokens
                .push(token(part.is_some_and(|part| self.parts[part].has_sets())));
        }
        for part in &mut self.parts {
            let lease = |&at: &usize| {
                let job = &taken[at];
                LeaseRef {
                    workflow: job.workflow(),
                    job: job.job(),
                    token: self.tokens[at],
                }
            };
            part.leases = part.jobs.iter().map(lease).collect();
        }
    }

    /// Acquires permits of concurrency limits.
    async fn acquire_permits(
        &mut self,
        taken: &[DequeuedJob],
        lease: Duration,
        told: CallClock,
        asked: u64,
    ) {
        let answers = self.hold_sets(taken, lease, told.started_at()).await;
        let mut granted: Vec<usize> = self.parts.iter().map(|part| part.jobs.len()).collect();
        let mut unknown = Vec::new();
        for answer in answers {
            let part = &mut self.parts[answer.part];
            let closed_for = closed_for(&self.engine, &answer.held);
            let number = answer.held.map_or_else(
                |error| {
                    tracing::warn!(set = answer.set, %error, "places under a limit of jobs could not be taken");
                    // The store may have granted them, so they are released in the background. If
                    // that fails, they expire.
                    unknown.extend(part.leases.iter().map(|lease| (answer.set.clone(), *lease)));
                    0
                },
                |held| held.granted,
            );
            granted[answer.part] = granted[answer.part].min(number);
            part.held.push((answer.set, number));
            if let Some(after) = closed_for {
                let closing = LimitBlock {
                    until: told.now() + after,
                    room: Some(1),
                    turns_at: None,
                };
                let job = self.parts[answer.part].first(taken);
                self.close(job, &answer.limit, closing, asked);
            }
        }
        self.engine.release_later(unknown);
        for (part, number) in granted.into_iter().enumerate() {
            self.keep(part, number);
        }
    }

    /// Requests permits of all concurrency limits from the store.
    async fn hold_sets(
        &self,
        taken: &[DequeuedJob],
        lease: Duration,
        now: Timestamp,
    ) -> Vec<SetAnswer> {
        let terms = self.engine.terms();
        let mut holds = Vec::new();
        let mut limits = Vec::new();
        for (at, part) in self.parts.iter().enumerate() {
            let DequeuedJob { queue, lane, .. } = part.first(taken);
            for (set, own) in part.sets() {
                let most = terms.lowest_concurrency(Some(queue), Some(&lane.handler), set, own);
                let leases = &part.leases;
                holds.push(PermitRequest { set, most, leases });
                limits.push((at, name_of_set(set, own)));
            }
        }
        if holds.is_empty() {
            return Vec::new();
        }
        let server = self.engine.server();
        let held = self.engine.store().hold(&holds, server, now, lease).await;
        let answers = limits.into_iter().zip(holds).zip(held);
        answers
            .map(|(((part, limit), hold), held)| SetAnswer {
                part,
                set: hold.set.to_owned(),
                limit,
                held,
            })
            .collect()
    }

    /// Acquires units of rate limits.
    async fn take_units(&mut self, taken: &[DequeuedJob], told: CallClock, asked: u64) {
        let wants = |part: &LimitCharge| part.has_units() && !part.leases.is_empty();
        let parts: Vec<usize> = (0..self.parts.len())
            .filter(|&part| wants(&self.parts[part]))
            .collect();
        let Some(units) = self.engine.units().filter(|_| !parts.is_empty()).cloned() else {
            return;
        };
        let wanted = parts.iter().map(|&part| {
            let LimitCharge { limits, leases, .. } = &self.parts[part];
            UnitRequest {
                limits: Arc::clone(limits),
                jobs: leases.len() as u32,
            }
        });
        // A time before the request would unblock limits before their windows end, and all waiting
        // workers would retry without effect.
        let asking = told.now();
        let granted = units.acquire(wanted.collect()).await;
        for (
            part,
            UnitGrant {
                jobs,
                receipt,
                no_room,
            },
        ) in parts.into_iter().zip(granted)
        {
            self.parts[part].receipt = receipt;
            if let Some(no_room) = no_room
                && let Some(limit) = self.parts[part]
                    .limits
                    .each()
                    .get(no_room.limit)
                    .map(name_of)
            {
                let closing = without_units(no_room, asking);
                self.close(self.parts[part].first(taken), &limit, closing, asked);
            }
            self.keep(part, jobs as usize);
        }
    }

    /// Whether any of the jobs has limits.
    pub(in crate::engine) fn has_limits(&self) -> bool {
        !self.parts.is_empty()
    }

    fn close(&self, taken: &DequeuedJob, limit: &Arc<str>, closing: LimitBlock, asked: u64) {
        self.engine
            .queues()
            .block((&taken.queue, &taken.lane), limit, closing, asked);
    }

    /// Releases the permits of all jobs of a charge but the first `number`. Units were not granted
    /// to the others.
    fn keep(&mut self, part: usize, number: usize) {
        let part = &mut self.parts[part];
        if number < part.leases.len() {
            self.denied += part.leases.len() - number;
            let places = part.places_after(number);
            part.leases.truncate(number);
            self.engine.release_later(places);
        }
    }

    /// Returns the denied jobs to their queues.
    fn leave_others(&mut self, taken: &mut PendingClaims<'_>) {
        if self.denied == 0 {
            return;
        }
        let mut keep = vec![true; taken.jobs().len()];
        for part in &mut self.parts {
            part.jobs
                .drain(part.leases.len()..)
                .for_each(|at| keep[at] = false);
        }
        // The new index of each job that is left.
        let mut place = 0;
        let places: Vec<usize> = keep
            .iter()
            .map(|&keep| {
                place += usize::from(keep);
                place.saturating_sub(1)
            })
            .collect();
        self.parts
            .iter_mut()
            .flat_map(|part| &mut part.jobs)
            .for_each(|at| *at = places[*at]);
        let mut kept = keep.iter();
        self.tokens.retain(|_| *kept.next().expect("one for each"));
        taken.put_back_unless(&keep);
    }

    /// Refunds the charges of jobs that were not leased. The charges of leased jobs are refunded if
    /// the jobs do not reach their worker.
    pub(in crate::engine) fn settle(mut self, answers: &mut [Result<Answer, EngineError>]) {
        for part in &mut self.parts {
            let mut vain = Vec::new();
            let receipt = part.receipt.take();
            for (&at, lease) in part.jobs.iter().zip(&part.leases) {
                match &mut answers[at] {
                    Ok(answer) => {
                        for leased in &mut answer.leased {
                            let Some(receipt) = receipt.clone() else {
                                continue;
                            };
                            leased.undelivered.with_charge(Charged {
                                limits: Arc::clone(&part.limits),
                                receipt,
                            });
                        }
                    }
                    Err(_) => vain.push(*lease),
                }
            }
            // Permits of leased jobs are released when their leases end.
            let places = part
                .held
                .iter()
                .flat_map(|(set, _)| vain.iter().map(|lease| (set.clone(), *lease)));
            self.engine.release_later(places.collect());
            if let Some(receipt) = receipt {
                let charged = Charged {
                    limits: Arc::clone(&part.limits),
                    receipt,
                };
                self.engine.refund(charged, vain.len() as u32);
            }
        }
    }
}

/// Refunds charges whose claims were not sent.
impl Drop for Charge {
    fn drop(&mut self) {
        if self.asked == Submission::Yes {
            return;
        }
        for part in &mut self.parts {
            self.engine.release_later(part.places_after(0));
            if let Some(receipt) = part.receipt.take() {
                let charged = Charged {
                    limits: Arc::clone(&part.limits),
                    receipt,
                };
                self.engine.refund(charged, part.leases.len() as u32);
            }
        }
    }
}

impl Engine {
    /// Refunds units in the background, and unblocks their limits then.
    pub(in crate::engine) fn refund(&self, Charged { limits, receipt }: Charged, jobs: u32) {
        if jobs == 0 {
            return;
        }
        let task = self.clone();
        self.spawn(async move {
            if let Some(units) = task.units() {
                units.give_back(receipt, jobs).await;
                let counted = limits
                    .each()
                    .iter()
                    .filter(|limit| matches!(limit, Limit::Units { .. }));
                counted.for_each(|limit| task.queues().unblock(&name_of(limit)));
            }
        });
    }
}
