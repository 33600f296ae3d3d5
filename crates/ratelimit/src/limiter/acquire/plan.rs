//! The plan of an acquisition: one request to each counter, for all jobs that need it.

use std::time::Duration;

use hashbrown::HashMap;
use smallvec::SmallVec;

use super::permits::OwnedCounter;
use super::request::{AcquireRequest, ExhaustedReason};
use crate::limiter::decision::answer::is_quota;
use crate::limiter::{AppliedLimit, AppliedLimits, CountedLimit, LimitDelta, Limiter, Options};
use crate::model::{Seconds, Timestamp};
use crate::store::{BulkCharge, Charge, GrantBound};

/// The jobs of one acquisition, and the counters that they need.
#[derive(Debug)]
pub(super) struct Plan<'p> {
    pub(super) jobs: Vec<PlannedJobs<'p>>,
    pub(super) counters: Vec<PlannedCounter<'p>>,
}

/// Jobs that have the same limits.
#[derive(Debug)]
pub(super) struct PlannedJobs<'p> {
    pub(super) times: u32,
    pub(super) limits: &'p [AppliedLimit<'p>],
    /// One need for each counter.
    pub(super) needs: SmallVec<[CounterNeed; 2]>,
    /// Index of the need of each limit that counts.
    pub(super) need_of: SmallVec<[usize; 2]>,
    /// Whether a limit certainly refuses the jobs, so that none of their counters is charged.
    pub(super) is_refused: bool,
    /// Index of a limit that does not count and is paused, and the end of the pause. Of several,
    /// the one with the latest end.
    pub(super) paused: Option<(usize, Timestamp)>,
}

/// Hits that one job needs from a counter.
#[derive(Debug, Clone, Copy)]
pub(super) struct CounterNeed {
    /// Index of the counter.
    pub(super) counter: usize,
    pub(super) hits: u64,
    pub(super) kind: NeedKind,
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
pub(super) struct PlannedCounter<'p> {
    pub(super) counted: &'p CountedLimit<'p>,
    pub(super) key: &'p [u8],
    /// Whether the counter grants all requested hits: a limit in shadow mode also counts hits over
    /// it.
    pub(super) is_unbounded: bool,
    /// Whether the local cache has the counter as over its limit.
    is_known_over: bool,
    request: Option<CounterRequest>,
    /// The last jobs that need the counter, and the index of their need.
    last_need: Option<(usize, usize)>,
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

impl<'p> PlannedJobs<'p> {
    fn new(times: u32, limits: &'p [AppliedLimit<'p>]) -> Self {
        Self {
            times,
            limits,
            needs: SmallVec::new(),
            need_of: SmallVec::new(),
            is_refused: false,
            paused: paused(limits),
        }
    }
}

impl<'p> Plan<'p> {
    pub(super) fn new(
        limiter: &Limiter,
        applied: &'p AppliedLimits<'_>,
        requests: &[AcquireRequest<'_>],
        now: Seconds,
    ) -> Self {
        let mut places = HashMap::new();
        let mut plan = Self {
            jobs: Vec::with_capacity(requests.len()),
            counters: Vec::new(),
        };
        let mut rest = &applied.limits[..];
        for AcquireRequest { limits, times } in requests {
            let (limits, others) = rest.split_at(limits.len());
            rest = others;
            let free_quota = has_free_quota(limits, &limiter.state.options);
            let mut jobs = PlannedJobs::new(*times, limits);
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
                        plan.counters
                            .push(PlannedCounter::new(limiter, counted, key, now));
                        plan.counters.len() - 1
                    });
                let paused = counted.paused_until();
                let is_unbounded = plan.counters[place].is_unbounded;
                let is_quota = is_quota(limit, &limiter.state.options);
                let kind = if paused.is_some() || !is_unbounded && !is_quota {
                    NeedKind::Required
                } else if is_unbounded || free_quota {
                    NeedKind::Optional
                } else {
                    NeedKind::Quota
                };
                plan.add_need(
                    &mut jobs,
                    CounterNeed {
                        counter: place,
                        hits: counted.hits,
                        kind,
                        paused,
                        limit: index,
                    },
                );
            }
            plan.request_counters(&mut jobs);
            plan.jobs.push(jobs);
        }
        plan
    }

    /// Adds a need of jobs. Two limits with one counter are one need.
    fn add_need(&mut self, jobs: &mut PlannedJobs<'_>, need: CounterNeed) {
        let number = self.jobs.len();
        let last = &mut self.counters[need.counter].last_need;
        let place = match *last {
            Some((of, place)) if of == number => {
                let known = &mut jobs.needs[place];
                known.hits += need.hits;
                known.paused = known.paused.max(need.paused);
                if need.paused.is_some() {
                    known.kind = NeedKind::Required;
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
    fn request_counters(&mut self, jobs: &mut PlannedJobs<'_>) {
        let is_blocked = |need: &&CounterNeed| self.block_reason(need).is_some();
        let of_kind = |kind: NeedKind| jobs.needs.iter().filter(move |need| need.kind == kind);
        let quotas = of_kind(NeedKind::Quota).count();
        if jobs.paused.is_some()
            || of_kind(NeedKind::Required).any(|need| is_blocked(&need))
            || quotas > 0 && of_kind(NeedKind::Quota).all(|need| is_blocked(&need))
        {
            jobs.is_refused = true;
            return;
        }
        for need in &jobs.needs {
            if self.block_reason(need).is_none() {
                self.counters[need.counter].add_request(jobs.times, need.hits);
            }
        }
    }

    /// Returns the reason why the counter of a need is not charged.
    pub(super) fn block_reason(&self, need: &CounterNeed) -> Option<BlockReason> {
        if let Some(until) = need.paused {
            return Some(BlockReason::Paused(until));
        }
        let counter = &self.counters[need.counter];
        if !counter.is_unbounded && need.hits > u64::from(counter.counted.requests_per_unit) {
            let scaled = counter
                .counted
                .scaled()
                .filter(|scaled| need.hits <= u64::from(scaled.configured));
            return Some(scaled.map_or(BlockReason::Never, |scaled| {
                BlockReason::Paused(scaled.until)
            }));
        }
        counter.is_known_over.then_some(BlockReason::KnownOver)
    }

    /// Multiplies the hits in new deltas, which are of one job, by the number of jobs.
    pub(super) fn multiply_hits(&self, tallies: &mut [LimitDelta]) {
        let times = self
            .jobs
            .iter()
            .flat_map(|jobs| jobs.need_of.iter().map(|_| u64::from(jobs.times)));
        for (tally, times) in tallies.iter_mut().zip(times) {
            tally.total_hits *= times;
        }
    }

    /// Returns one charge for each counter that is requested, in their order.
    pub(super) fn bulk_charges(&self, limiter: &Limiter) -> Vec<BulkCharge<'p>> {
        let bulk_charge = |counter: &PlannedCounter<'p>| {
            let CounterRequest { hits, step } = counter.request?;
            let charge = limiter.charge(counter.counted, counter.key);
            let hits = i64::try_from(hits).unwrap_or(i64::MAX);
            let bound = if counter.is_unbounded {
                GrantBound::Unbounded
            } else {
                GrantBound::UpToLimit { step }
            };
            Some(BulkCharge {
                charge: Charge { hits, ..charge },
                bound,
            })
        };
        self.counters.iter().filter_map(bulk_charge).collect()
    }
}

impl<'p> PlannedCounter<'p> {
    fn new(limiter: &Limiter, counted: &'p CountedLimit<'p>, key: &'p [u8], now: Seconds) -> Self {
        Self {
            counted,
            key,
            is_unbounded: is_shadow(counted, &limiter.state.options),
            is_known_over: limiter.is_known_over(counted, key, now),
            request: None,
            last_need: None,
        }
    }

    fn add_request(&mut self, times: u32, hits: u64) {
        let request = self.request.get_or_insert(CounterRequest {
            hits: 0,
            step: hits,
        });
        request.hits = request
            .hits
            .saturating_add(hits.saturating_mul(times.into()));
        request.step = greatest_common_divisor(request.step, hits);
    }

    pub(super) fn is_requested(&self) -> bool {
        self.request.is_some()
    }

    pub(super) fn to_owned(&self) -> OwnedCounter {
        OwnedCounter {
            key: self.key.into(),
            window: self.counted.window,
        }
    }

    /// Returns the reason of a used-up counter: its window ends, or the limit is no longer scaled
    /// down.
    pub(super) fn used_up(&self, now: Timestamp) -> ExhaustedReason {
        let end = self.counted.window.end().0.saturating_mul(1_000_000);
        let end = match self.counted.scaled() {
            Some(scaled) if self.counted.requests_per_unit < scaled.configured => {
                end.min(scaled.until.0)
            }
            _ => end,
        };
        ExhaustedReason::UsedUp {
            after: Duration::from_micros(end.saturating_sub(now.0)),
        }
    }
}

impl<'p> PlannedJobs<'p> {
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
