//! The plan of an acquisition: one request to each counter, for all jobs that need it.

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

/// The jobs of one acquisition, and the counters that they need.
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
    /// One need for each counter.
    pub(super) needs: SmallVec<[Need; 2]>,
    /// Index of the need of each limit that counts.
    pub(super) need_of: SmallVec<[usize; 2]>,
    pub(super) outlook: Feasibility,
    /// Index of a limit that does not count and is paused, and the end of the pause. Of several,
    /// the one with the latest end.
    pub(super) paused: Option<(usize, Timestamp)>,
}

/// Result of the checks before the call to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Feasibility {
    Open,
    /// A limit certainly refuses the jobs, so none of their counters is charged.
    Refused,
}

/// Hits that one job needs from a counter.
#[derive(Debug, Clone, Copy)]
pub(super) struct Need {
    /// Index of the counter.
    pub(super) counter: usize,
    pub(super) hits: u64,
    pub(super) part: NeedKind,
    /// End of a pause. No hits are granted before it.
    pub(super) paused: Option<Timestamp>,
    /// Index of the limit among those of the job.
    pub(super) limit: usize,
}

/// Effect on a job if a counter has no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NeedKind {
    /// The job waits.
    Required,
    /// The job waits if no other quota has room.
    Quota,
    /// The job does not wait.
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
    /// The last jobs that need the counter, and the index of their need.
    last: Option<(usize, usize)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bound {
    Limit,
    /// A limit in shadow mode also counts hits over it.
    None,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CacheState {
    Nothing,
    /// The local cache has the counter as over its limit.
    Over,
}

#[derive(Debug, Clone, Copy)]
struct CounterRequest {
    hits: u64,
    /// Common divisor of the hits of all jobs.
    step: u64,
}

/// Reason why a counter is not charged for a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BlockReason {
    /// The limit is paused until then, or scaled below the hits of one job until then.
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
                // Keys that share a counter may be scaled separately.
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

    /// Adds a need of jobs. Two limits with one counter are one need.
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

    /// Adds the needs of jobs to the requests to their counters, unless a limit certainly refuses
    /// the jobs.
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

    /// Returns the reason why the counter of a need is not charged.
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

    /// Multiplies the hits in new deltas, which are of one job, by the number of jobs.
    pub(super) fn note_hits(&self, tallies: &mut [LimitDelta]) {
        let times = self
            .jobs
            .iter()
            .flat_map(|jobs| jobs.need_of.iter().map(|_| u64::from(jobs.times)));
        for (tally, times) in tallies.iter_mut().zip(times) {
            tally.total_hits *= times;
        }
    }

    /// Returns one charge for each counter that is requested, in their order.
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

    /// Returns whether the counter grants all requested hits.
    pub(super) fn is_unbounded(&self) -> bool {
        self.bound == Bound::None
    }

    pub(super) fn to_owned(&self) -> OwnedCounter {
        OwnedCounter {
            key: self.key.into(),
            window: self.counted.window,
        }
    }

    /// Returns the reason of a used-up counter: its window ends, or the limit is no longer scaled
    /// down.
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
    /// Returns the limits that count, each with its index among them.
    pub(super) fn counted(&self) -> impl Iterator<Item = (usize, &'p CountedLimit<'p>)> {
        let counted = self.limits.iter().filter_map(|limit| match limit {
            AppliedLimit::Counted(counted) => Some(counted),
            AppliedLimit::None | AppliedLimit::Unlimited(_) | AppliedLimit::Paused(_) => None,
        });
        counted.enumerate()
    }
}

/// Returns the index of the limit that does not count and is paused for longest, and the end of its
/// pause.
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

/// Returns whether one of the limits is a quota that is never over.
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
