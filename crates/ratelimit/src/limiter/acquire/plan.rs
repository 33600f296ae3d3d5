//! What a take asks of the counters: each is asked once, for all jobs that need it.

use std::time::Duration;

use hashbrown::HashMap;
use smallvec::SmallVec;

use super::permits::OwnedCounter;
use super::{AcquireRequest, Reason};
use crate::limiter::Limiter;
use crate::limiter::answer::is_quota;
use crate::limiter::applied_limits::{AppliedLimit, AppliedLimits, CountedLimit};
use crate::limiter::options::Options;
use crate::request::Timestamp;
use crate::response::LimitDelta;
use crate::store::{BulkCharge, Charge, GrantBound};
use crate::window::Seconds;

/// What a take asks of the counters.
#[derive(Debug)]
pub(super) struct Plan<'p> {
    pub(super) jobs: Vec<Jobs<'p>>,
    pub(super) counters: Vec<Counter<'p>>,
}

/// Jobs that have the same limits.
#[derive(Debug)]
pub(super) struct Jobs<'p> {
    pub(super) times: u32,
    pub(super) limits: &'p [AppliedLimit<'p>],
    /// One for each counter.
    pub(super) needs: SmallVec<[Need; 2]>,
    /// The place of the need of each limit that counts.
    pub(super) need_of: SmallVec<[usize; 2]>,
    pub(super) outlook: Feasibility,
    /// The place of a limit that does not count and is paused, and until when it is; of several the one that is so for longest.
    pub(super) paused: Option<(usize, Timestamp)>,
}

/// What is known before the store is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Feasibility {
    Open,
    /// A limit refuses them for sure, so that none of their counters is asked for them.
    Refused,
}

/// What one job needs of a counter.
#[derive(Debug, Clone, Copy)]
pub(super) struct Need {
    /// The counter's place.
    pub(super) counter: usize,
    pub(super) hits: u64,
    pub(super) part: NeedKind,
    /// Nothing is granted until then.
    pub(super) paused: Option<Timestamp>,
    /// The place of the limit among those of the job.
    pub(super) limit: usize,
}

/// What follows when a counter has no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NeedKind {
    /// The job waits.
    Required,
    /// The job waits if no other quota has room.
    Quota,
    /// Nothing.
    Optional,
}

/// A counter that jobs need.
#[derive(Debug)]
pub(super) struct Counter<'p> {
    pub(super) counted: &'p CountedLimit<'p>,
    pub(super) key: &'p [u8],
    bound: Bound,
    known: CacheState,
    asked: Option<CounterRequest>,
    /// The last jobs that need it, and the place of their need.
    last: Option<(usize, usize)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bound {
    Limit,
    /// A limit in shadow mode counts what goes over it.
    None,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CacheState {
    Nothing,
    /// The local cache has it.
    Over,
}

#[derive(Debug, Clone, Copy)]
struct CounterRequest {
    hits: u64,
    /// What the hits of every job are a multiple of.
    step: u64,
}

/// Why a counter is not asked for a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BlockReason {
    /// Until then, or it is scaled below what one job needs until then.
    Paused(Timestamp),
    KnownOver,
    /// One job needs more than the limit.
    Never,
}

impl<'p> Jobs<'p> {
    fn new(times: u32, limits: &'p [AppliedLimit<'p>]) -> Self {
        Self {
            times,
            limits,
            needs: SmallVec::new(),
            need_of: SmallVec::new(),
            outlook: Feasibility::Open,
            paused: paused(limits),
        }
    }
}

impl<'p> Plan<'p> {
    pub(super) fn new(
        limiter: &Limiter,
        applied: &'p AppliedLimits<'_>,
        wanted: &[AcquireRequest<'_>],
        now: Seconds,
    ) -> Self {
        let mut places = HashMap::new();
        let mut plan = Self {
            jobs: Vec::with_capacity(wanted.len()),
            counters: Vec::new(),
        };
        let mut rest = &applied.limits[..];
        for AcquireRequest { limits, times } in wanted {
            let (limits, others) = rest.split_at(limits.len());
            rest = others;
            let free_quota = has_free_quota(limits, &limiter.state.options);
            let mut jobs = Jobs::new(*times, limits);
            for (index, limit) in limits.iter().enumerate() {
                let AppliedLimit::Counted(counted) = limit else {
                    continue;
                };
                let key = applied.key(counted);
                let rule = counted
                    .limit
                    .map_or(0, |limit| std::ptr::from_ref(limit).addr());
                // Keys that share a counter may be scaled each for itself.
                let place = *places
                    .entry((key, rule, counted.requests_per_unit))
                    .or_insert_with(|| {
                        plan.counters.push(Counter::new(limiter, counted, key, now));
                        plan.counters.len() - 1
                    });
                let paused = counted.paused();
                let part = match plan.counters[place].bound {
                    _ if paused.is_some() => NeedKind::Required,
                    Bound::None => NeedKind::Optional,
                    Bound::Limit if !is_quota(limit, &limiter.state.options) => NeedKind::Required,
                    Bound::Limit if free_quota => NeedKind::Optional,
                    Bound::Limit => NeedKind::Quota,
                };
                plan.need(
                    &mut jobs,
                    Need {
                        counter: place,
                        hits: counted.hits,
                        part,
                        paused,
                        limit: index,
                    },
                );
            }
            plan.ask_for(&mut jobs);
            plan.jobs.push(jobs);
        }
        plan
    }

    /// Adds a need to those of jobs. Two limits with one counter are one need.
    fn need(&mut self, jobs: &mut Jobs<'_>, need: Need) {
        let number = self.jobs.len();
        let last = &mut self.counters[need.counter].last;
        let place = match *last {
            Some((of, place)) if of == number => {
                let known = &mut jobs.needs[place];
                known.hits += need.hits;
                known.paused = known.paused.max(need.paused);
                if need.paused.is_some() {
                    known.part = NeedKind::Required;
                }
                place
            }
            _ => {
                jobs.needs.push(need);
                jobs.needs.len() - 1
            }
        };
        *last = Some((number, place));
        jobs.need_of.push(place);
    }

    /// Asks the counters for what jobs need, unless that is of no use.
    fn ask_for(&mut self, jobs: &mut Jobs<'_>) {
        let shut = |need: &&Need| self.shut(need).is_some();
        let of_part = |part: NeedKind| jobs.needs.iter().filter(move |need| need.part == part);
        let quotas = of_part(NeedKind::Quota).count();
        if jobs.paused.is_some()
            || of_part(NeedKind::Required).any(|need| shut(&need))
            || quotas > 0 && of_part(NeedKind::Quota).all(|need| shut(&need))
        {
            jobs.outlook = Feasibility::Refused;
            return;
        }
        for need in &jobs.needs {
            if self.shut(need).is_none() {
                self.counters[need.counter].ask(jobs.times, need.hits);
            }
        }
    }

    /// Why the counter of a need is not asked.
    pub(super) fn shut(&self, need: &Need) -> Option<BlockReason> {
        if let Some(until) = need.paused {
            return Some(BlockReason::Paused(until));
        }
        let counter = &self.counters[need.counter];
        if counter.bound == Bound::Limit && need.hits > u64::from(counter.counted.requests_per_unit)
        {
            let scaled = counter
                .counted
                .scaled()
                .filter(|scaled| need.hits <= u64::from(scaled.configured));
            return Some(scaled.map_or(BlockReason::Never, |scaled| {
                BlockReason::Paused(scaled.until)
            }));
        }
        (counter.known == CacheState::Over).then_some(BlockReason::KnownOver)
    }

    /// Makes the hits of one job those of all that are wanted, in tallies about which nothing was decided.
    pub(super) fn note_hits(&self, tallies: &mut [LimitDelta]) {
        let times = self
            .jobs
            .iter()
            .flat_map(|jobs| jobs.need_of.iter().map(|_| u64::from(jobs.times)));
        for (tally, times) in tallies.iter_mut().zip(times) {
            tally.total_hits *= times;
        }
    }

    /// One for each counter that is asked, in their order.
    pub(super) fn asks(&self, limiter: &Limiter) -> Vec<BulkCharge<'p>> {
        let ask = |counter: &Counter<'p>| {
            let CounterRequest { hits, step } = counter.asked?;
            let charge = limiter.charge(counter.counted, counter.key);
            let hits = i64::try_from(hits).unwrap_or(i64::MAX);
            let room = if counter.is_unbounded() {
                GrantBound::Unbounded
            } else {
                GrantBound::UpToLimit { step }
            };
            Some(BulkCharge {
                charge: Charge { hits, ..charge },
                room,
            })
        };
        self.counters.iter().filter_map(ask).collect()
    }
}

impl<'p> Counter<'p> {
    fn new(limiter: &Limiter, counted: &'p CountedLimit<'p>, key: &'p [u8], now: Seconds) -> Self {
        let bound = if is_shadow(counted, &limiter.state.options) {
            Bound::None
        } else {
            Bound::Limit
        };
        let known = if limiter.is_known_over(counted, key, now) {
            CacheState::Over
        } else {
            CacheState::Nothing
        };
        Self {
            counted,
            key,
            bound,
            known,
            asked: None,
            last: None,
        }
    }

    fn ask(&mut self, times: u32, hits: u64) {
        let asked = self.asked.get_or_insert(CounterRequest {
            hits: 0,
            step: hits,
        });
        asked.hits = asked.hits.saturating_add(hits.saturating_mul(times.into()));
        asked.step = greatest_common_divisor(asked.step, hits);
    }

    pub(super) fn is_asked(&self) -> bool {
        self.asked.is_some()
    }

    /// Whether it counts all that it is asked for.
    pub(super) fn is_unbounded(&self) -> bool {
        self.bound == Bound::None
    }

    pub(super) fn to_owned(&self) -> OwnedCounter {
        OwnedCounter {
            key: self.key.into(),
            window: self.counted.window,
        }
    }

    /// It is used up until its window ends, or until it is no longer scaled down.
    pub(super) fn used_up(&self, now: Timestamp) -> Reason {
        let end = self.counted.window.end().0.saturating_mul(1_000_000);
        let end = match self.counted.scaled() {
            Some(scaled) if self.counted.requests_per_unit < scaled.configured => {
                end.min(scaled.until.0)
            }
            _ => end,
        };
        Reason::UsedUp {
            after: Duration::from_micros(end.saturating_sub(now.0)),
        }
    }
}

impl<'p> Jobs<'p> {
    /// The limits that count, each with its place among them.
    pub(super) fn counted(&self) -> impl Iterator<Item = (usize, &'p CountedLimit<'p>)> {
        let counted = self.limits.iter().filter_map(|limit| match limit {
            AppliedLimit::Counted(counted) => Some(counted),
            AppliedLimit::None | AppliedLimit::Unlimited(_) | AppliedLimit::Paused(_) => None,
        });
        counted.enumerate()
    }
}

/// The place of the limit that does not count and is paused for longest, and until when it is.
fn paused(limits: &[AppliedLimit<'_>]) -> Option<(usize, Timestamp)> {
    let paused = |(index, limit): (usize, &AppliedLimit<'_>)| match limit {
        AppliedLimit::Paused(until) => Some((index, *until)),
        _ => None,
    };
    limits
        .iter()
        .enumerate()
        .filter_map(paused)
        .max_by_key(|(_, until)| *until)
}

fn is_shadow(counted: &CountedLimit<'_>, options: &Options) -> bool {
    options.global_shadow_mode || counted.limit.is_some_and(|limit| limit.shadow_mode)
}

/// Whether one of the limits is a quota that is never over.
fn has_free_quota(limits: &[AppliedLimit<'_>], options: &Options) -> bool {
    let is_free = |limit: &AppliedLimit<'_>| match limit {
        AppliedLimit::Counted(counted) => is_shadow(counted, options),
        AppliedLimit::None | AppliedLimit::Unlimited(_) | AppliedLimit::Paused(_) => true,
    };
    limits
        .iter()
        .any(|limit| is_quota(limit, options) && is_free(limit))
}

fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}
