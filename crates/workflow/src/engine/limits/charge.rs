//! Takes what jobs need that were taken out of their queues, and gives back what was taken in vain.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;

use super::look::patience;
use super::unbegun::Charged;
use super::units::{Granted, NoRoom, Receipt, Units, Wanted};
use super::{name_of, name_of_set};
use crate::engine::Engine;
use crate::engine::claim::settling::Settling;
use crate::engine::claim::told::Told;
use crate::engine::desk::answer::Answer;
use crate::engine::desk::play::new_token;
use crate::engine::error::EngineError;
use crate::engine::queues::Taken;
use crate::engine::queues::closings::Closing;
use crate::graph::limits::{Limit, Limits};
use crate::record::lease::LeaseRef;
use crate::store::holders::{Extended, Hold};
use crate::time::Timestamp;

/// When a limit is asked again that could not be asked.
const AGAIN: Duration = Duration::from_secs(1);
/// A set without places is asked again after this time at the latest: what is heard of places that are free may get lost, and so may the store.
const LONGEST: Duration = Duration::from_secs(15);
/// How often it is tried to free a place: for ten minutes.
const RELEASES: u32 = 600;

/// A rate limit without room, by what it answered when it was asked at that time.
pub(super) fn without_units(no_room: NoRoom, asked: Timestamp) -> Closing {
    let until = asked + no_room.again.unwrap_or_else(|| patience(no_room.after));
    Closing {
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
    parts: Vec<Part>,
    /// How many jobs had no room.
    pub(in crate::engine) denied: usize,
    asked: Asked,
}

/// Whether the desks were asked for the jobs. If they were, the jobs may be leased although the caller has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    NotYet,
    Yes,
}

/// What was taken for jobs with the same limits.
#[derive(Debug)]
struct Part {
    limits: Arc<Limits>,
    /// Which of the jobs.
    jobs: Vec<usize>,
    leases: Vec<LeaseRef>,
    receipt: Option<Receipt>,
    /// The sets in which the first leases have places, or may have, and how many.
    held: Vec<(String, usize)>,
}

impl Part {
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
        taken: &mut Settling<'_>,
        lease: Duration,
        told: Told,
    ) -> Charge {
        let mut charge = Charge {
            engine: self.clone(),
            tokens: Vec::new(),
            parts: Vec::new(),
            denied: 0,
            asked: Asked::NotYet,
        };
        charge.begin(taken.jobs());
        if !charge.parts.is_empty() {
            let asked = self.queues().returned();
            charge.hold(taken.jobs(), (lease, told), asked).await;
            charge.take_units(taken.jobs(), told, asked).await;
            charge.leave_others(taken);
        }
        charge
    }

    /// Lets the places of leases last as long as the leases are to.
    pub(in crate::engine) async fn extend_places(
        &self,
        extensions: &[(LeaseRef, Timestamp)],
        now: Timestamp,
    ) -> Vec<Result<Extended, EngineError>> {
        let mut results = vec![Ok(Extended::Yes); extensions.len()];
        let mut by_lease: BTreeMap<Duration, Vec<(usize, String, LeaseRef)>> = BTreeMap::new();
        for (at, (lease, expires)) in extensions
            .iter()
            .enumerate()
            .filter(|(_, (lease, _))| has_places(lease.token))
        {
            match self.graph(lease.workflow).await {
                Ok(Some((graph, _))) => {
                    let places = graph
                        .sets(lease.workflow, lease.job)
                        .into_iter()
                        .map(|set| (at, set, *lease));
                    by_lease
                        .entry(expires.since(now))
                        .or_default()
                        .extend(places);
                }
                // The desk says so.
                Ok(None) => {}
                Err(error) => results[at] = Err(error),
            }
        }
        for (length, places) in by_lease {
            let each: Vec<(&str, LeaseRef)> = places
                .iter()
                .map(|(_, set, lease)| (set.as_str(), *lease))
                .collect();
            for ((at, ..), extended) in places
                .iter()
                .zip(self.store().extend_holds(&each, now, length).await)
            {
                match (extended, &results[*at]) {
                    (Ok(Extended::Yes), _) | (_, Err(_)) => {}
                    (other, Ok(_)) => results[*at] = other.map_err(EngineError::from),
                }
            }
        }
        self.hold_again_after_gap(extensions, &mut results, now)
            .await;
        results
    }

    /// Places that are gone because they could not be extended during an outage are taken again, if they are free.
    async fn hold_again_after_gap(
        &self,
        extensions: &[(LeaseRef, Timestamp)],
        results: &mut [Result<Extended, EngineError>],
        now: Timestamp,
    ) {
        let is_gone = |result: &Result<Extended, EngineError>| matches!(result, Ok(Extended::Gone));
        let gone = extensions
            .iter()
            .zip(&*results)
            .filter(|(_, result)| is_gone(result));
        let gone = gone.filter(|((lease, until), _)| {
            self.had_gap(lease.workflow.partition(), until.since(now), now)
        });
        let gone: Vec<(LeaseRef, Timestamp)> = gone.map(|(extension, _)| *extension).collect();
        if gone.is_empty() {
            return;
        }
        let held = self.hold_spared(&gone, now).await;
        for ((lease, _), result) in extensions.iter().zip(results) {
            if held.contains(lease) {
                *result = Ok(Extended::Yes);
            }
        }
    }

    /// Frees places without waiting for the store.
    pub(in crate::engine) fn release_later(&self, places: Vec<(String, LeaseRef)>) {
        let engine = self.clone();
        self.spawn(async move { engine.release(&places).await });
    }

    /// Frees places. While the store does not take it, that is tried again: a place outlives its job otherwise, by as long as the lease was to last.
    async fn release(&self, places: &[(String, LeaseRef)]) {
        let mut each: Vec<(&str, LeaseRef)> = places
            .iter()
            .map(|(set, lease)| (set.as_str(), *lease))
            .collect();
        for tries in 1..=RELEASES {
            let released = self
                .store()
                .release(&each, self.server(), self.queues().now())
                .await;
            let mut failed = Vec::new();
            for ((set, lease), released) in each.into_iter().zip(released) {
                match released {
                    Ok(_) => self.queues().open(set),
                    Err(_) => failed.push((set, lease)),
                }
            }
            if failed.is_empty() || tries == RELEASES || self.core.tasks.is_closed() {
                return;
            }
            each = failed;
            tokio::time::sleep(AGAIN).await;
        }
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
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
        self.asked = Asked::Yes;
        self
    }

    /// Sorts the jobs by their limits.
    fn begin(&mut self, taken: &[Taken]) {
        let mut places: HashMap<&str, usize> = HashMap::new();
        for (at, job) in taken.iter().enumerate() {
            let key = &job.lane.limits;
            let part = (!key.is_empty()).then(|| {
                let next = || {
                    self.parts
                        .push(Part::new(self.engine.queues().limits_of(job)));
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
    async fn hold(&mut self, taken: &[Taken], (lease, told): (Duration, Told), asked: u64) {
        let parts: Vec<usize> = (0..self.parts.len())
            .filter(|&part| self.parts[part].has_sets())
            .collect();
        if parts.is_empty() {
            return;
        }
        let terms = self.engine.terms();
        let holds = parts.iter().flat_map(|&part| {
            let (leases, terms) = (&*self.parts[part].leases, &terms);
            let Taken { queue, lane, .. } = &taken[self.parts[part].jobs[0]];
            self.parts[part].sets().map(move |(set, own)| {
                let most = terms.lowest_concurrency(Some(queue), Some(&lane.handler), set, own);
                ((part, own), Hold { set, most, leases })
            })
        });
        let (of, holds): (Vec<(usize, u32)>, Vec<Hold<'_>>) = holds.unzip();
        let held = self
            .engine
            .store()
            .hold(&holds, self.engine.server(), told.then(), lease)
            .await;
        let mut granted: Vec<usize> = self.parts.iter().map(|part| part.jobs.len()).collect();
        let (mut closed, mut taken_places, mut unknown) = (Vec::new(), Vec::new(), Vec::new());
        for (((part, own), hold), held) in of.iter().zip(&holds).zip(held) {
            let (number, after) = match held {
                Ok(held) => {
                    let next = held.next.unwrap_or(AGAIN).min(LONGEST);
                    // Who does not hear of places that others free has to look.
                    let next = if self.engine.hears_of_places() {
                        next
                    } else {
                        next.min(AGAIN)
                    };
                    (held.granted, (held.free == 0).then_some(next))
                }
                Err(error) => {
                    tracing::warn!(set = hold.set, %error, "places under a limit of jobs could not be taken");
                    // They may have been. Nobody waits for them: their time will be over.
                    unknown.extend(
                        hold.leases
                            .iter()
                            .map(|lease| (hold.set.to_owned(), *lease)),
                    );
                    (0, Some(AGAIN))
                }
            };
            granted[*part] = granted[*part].min(number);
            taken_places.push((*part, hold.set.to_owned(), number));
            closed.extend(after.map(|after| (*part, name_of_set(hold.set, *own), after)));
        }
        taken_places
            .into_iter()
            .for_each(|(part, set, number)| self.parts[part].held.push((set, number)));
        for (part, set, after) in closed {
            self.close(
                &taken[self.parts[part].jobs[0]],
                &set,
                Closing {
                    until: told.now() + after,
                    room: Some(1),
                    turns_at: None,
                },
                asked,
            );
        }
        if !unknown.is_empty() {
            self.engine.release_later(unknown);
        }
        for part in parts {
            self.keep(part, granted[part]);
        }
    }

    /// Takes units of rate limits.
    async fn take_units(&mut self, taken: &[Taken], told: Told, asked: u64) {
        let wants = |part: &Part| part.has_units() && !part.leases.is_empty();
        let parts: Vec<usize> = (0..self.parts.len())
            .filter(|&part| wants(&self.parts[part]))
            .collect();
        let Some(units) = self.engine.units().filter(|_| !parts.is_empty()).cloned() else {
            return;
        };
        let wanted = parts.iter().map(|&part| {
            let Part { limits, leases, .. } = &self.parts[part];
            Wanted {
                limits: Arc::clone(limits),
                jobs: leases.len() as u32,
            }
        });
        // An earlier moment would open limits before their windows turn, and all who wait would ask in vain.
        let asking = told.now();
        let granted = units.take(wanted.collect()).await;
        for (
            part,
            Granted {
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
                self.close(&taken[self.parts[part].jobs[0]], &limit, closing, asked);
            }
            self.keep(part, jobs as usize);
        }
    }

    /// Whether any of the jobs needs something.
    pub(in crate::engine) fn has_limits(&self) -> bool {
        !self.parts.is_empty()
    }

    fn close(&self, taken: &Taken, limit: &Arc<str>, closing: Closing, asked: u64) {
        self.engine
            .queues()
            .close((&taken.queue, &taken.lane), limit, closing, asked);
    }

    /// Frees what was taken for all but the first jobs of a part. Their units are not among what was granted.
    fn keep(&mut self, part: usize, number: usize) {
        let part = &mut self.parts[part];
        if number < part.leases.len() {
            self.denied += part.leases.len() - number;
            let places = part.places_after(number);
            part.leases.truncate(number);
            if !places.is_empty() {
                self.engine.release_later(places);
            }
        }
    }

    /// Puts the jobs back for which there was no room.
    fn leave_others(&mut self, taken: &mut Settling<'_>) {
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
            let (mut vain, receipt) = (Vec::new(), part.receipt.take());
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
            let places: Vec<_> = places.collect();
            if !places.is_empty() {
                self.engine.release_later(places);
            }
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
        if self.asked == Asked::Yes {
            return;
        }
        for part in &mut self.parts {
            let places = part.places_after(0);
            if !places.is_empty() {
                self.engine.release_later(places);
            }
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
                counted.for_each(|limit| task.queues().open(&name_of(limit)));
            }
        });
    }
}
