//! Takes what jobs need that were taken out of their queues, and gives back what was taken in vain.

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

/// When a limit is asked again that could not be asked.
pub(super) const RETRY_AFTER: Duration = Duration::from_secs(1);
/// A set without places is asked again after this time at the latest: what is heard of places that are free may get lost, and so may the store.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(15);

/// A rate limit without room, by what it answered when it was asked at that time.
pub(super) fn without_units(no_room: LimitExhausted, asked: Timestamp) -> LimitBlock {
    let until = asked + no_room.again.unwrap_or_else(|| patience(no_room.after));
    LimitBlock {
        until,
        room: None,
        turns_at: Some(asked + no_room.after),
    }
}

/// What was taken for jobs.
#[derive(Debug)]
pub(in crate::engine) struct Charge {
    engine: Engine,
    /// The tokens of their leases, in the order of the jobs.
    tokens: Vec<u64>,
    parts: Vec<LimitCharge>,
    /// How many jobs had no room.
    pub(in crate::engine) denied: usize,
    asked: Submission,
}

/// Whether the desks were asked for the jobs. If they were, the jobs may be leased although the caller has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Submission {
    NotYet,
    Yes,
}

/// What was taken for jobs with the same limits.
#[derive(Debug)]
struct LimitCharge {
    limits: Arc<Limits>,
    /// Which of the jobs.
    jobs: Vec<usize>,
    leases: Vec<LeaseRef>,
    receipt: Option<Receipt>,
    /// The sets in which the first leases have places, or may have, and how many.
    held: Vec<(String, usize)>,
}

/// What the store answered for one set of a part.
struct SetAnswer {
    part: usize,
    set: String,
    /// The name of the limit.
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

    /// The job whose queue and lane stand for all: their limits are equal.
    fn first<'t>(&self, taken: &'t [DequeuedJob]) -> &'t DequeuedJob {
        &taken[self.jobs[0]]
    }

    fn has_units(&self) -> bool {
        self.limits
            .each()
            .iter()
            .any(|limit| matches!(limit, Limit::Units { .. }))
    }

    /// The places of all but so many leases, which are given up.
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
    /// Takes what these jobs need under their limits. Those for which there is no room go back to their queues, where they wait until there is
    /// some.
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

/// Whether the job of a lease has a place in a set. Tokens of earlier versions say so by chance, too.
pub(super) fn has_places(token: u64) -> bool {
    token & 1 == 1
}

/// How long a set gives no places after an answer of the store. `None` if it has some left.
fn closed_for(engine: &Engine, held: &Result<PermitGrant, StoreError>) -> Option<Duration> {
    let Ok(held) = held else {
        return Some(RETRY_AFTER);
    };
    // A server that does not hear of places that others free has to look.
    let longest = if engine.receives_releases() {
        MAX_RETRY_AFTER
    } else {
        RETRY_AFTER
    };
    (held.free == 0).then(|| held.next.unwrap_or(RETRY_AFTER).min(longest))
}

fn token(places: bool) -> u64 {
    // Without the lowest bit it could be 0.
    let token = new_token() | 2;
    if places { token | 1 } else { token & !1 }
}

impl Charge {
    pub(in crate::engine) fn tokens(&self) -> &[u64] {
        &self.tokens
    }

    /// From here on the desks are asked for the jobs.
    pub(in crate::engine) fn asked(mut self) -> Self {
        self.asked = Submission::Yes;
        self
    }

    /// Sorts the jobs by their limits.
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

    /// Takes places.
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
                    // They may have been. Nobody waits for them: their time will be over.
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

    /// Asks the store for places in all sets.
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

    /// Takes units of rate limits.
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
        // An earlier moment would open limits before their windows turn, and all who wait would ask in vain.
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

    /// Whether any of the jobs needs something.
    pub(in crate::engine) fn has_limits(&self) -> bool {
        !self.parts.is_empty()
    }

    fn close(&self, taken: &DequeuedJob, limit: &Arc<str>, closing: LimitBlock, asked: u64) {
        self.engine
            .queues()
            .block((&taken.queue, &taken.lane), limit, closing, asked);
    }

    /// Frees what was taken for all but the first jobs of a part. Their units are not among what was granted.
    fn keep(&mut self, part: usize, number: usize) {
        let part = &mut self.parts[part];
        if number < part.leases.len() {
            self.denied += part.leases.len() - number;
            let places = part.places_after(number);
            part.leases.truncate(number);
            self.engine.release_later(places);
        }
    }

    /// Puts the jobs back for which there was no room.
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
        // Where those that are left are now.
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

    /// Gives back what was taken for jobs that were not leased after all. What was taken for the others is given back if they do not reach
    /// their worker.
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
            // The places of those that were leased are freed when their leases end.
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

/// What was taken for jobs that nobody was asked to lease is given back.
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
    /// Gives units back, without waiting for it. Then others may take them.
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
