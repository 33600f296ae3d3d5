//! Distributes the granted hits: earlier jobs come first, and each job gets all or none of its
//! needs.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::permits::{JobCharge, OwnedCounter, Permits, Refunds};
use super::plan::{BlockReason, Feasibility, Jobs, Need, NeedKind, Plan};
use super::usage_counts::{Event, complete};
use super::{Acquired, Exhausted, Reason, Remaining};
use crate::limiter::answer;
use crate::limiter::options::Options;
use crate::limiter::overridden::NEVER;
use crate::request::Timestamp;
use crate::response::{Code, LimitDelta, Status};
use crate::store::{Grant, StoreError};

/// The hits that the counters granted, and the rest that no job has yet.
#[derive(Debug)]
pub(super) struct Shares<'p> {
    plan: &'p Plan<'p>,
    /// One pool for each counter.
    pools: Vec<Pool>,
    /// Whether jobs must wait, or would have to without global shadow mode.
    pub(super) over: bool,
}

#[derive(Debug)]
enum Pool {
    NotAsked,
    Failed(StoreError),
    Granted(Hits),
}

/// Hits that a counter granted.
#[derive(Debug)]
struct Hits {
    /// Hits that no job has.
    left: u64,
    /// Value of the counter before, plus the hits of the jobs that are done.
    before: u64,
    /// Value of the counter with all granted hits.
    total: u64,
}

/// The share of jobs with the same limits.
#[derive(Debug)]
struct JobShare {
    outcome: Outcome,
    /// Number of jobs that have all their needs.
    times: u32,
    /// One share for each need.
    of_needs: SmallVec<[OfNeed; 2]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Shared,
    Refused,
    Failed,
}

#[derive(Debug, Clone, Copy, Default)]
struct OfNeed {
    /// Number of jobs that the counter has room for.
    offered: u32,
    /// Number of jobs that are charged to it.
    charged: u32,
}

impl<'p> Shares<'p> {
    /// Creates the pools. `grants` has one grant for each requested counter, in their order.
    pub(super) fn new(plan: &'p Plan<'p>, grants: Vec<Result<Grant, StoreError>>) -> Self {
        let mut grants = grants.into_iter();
        let mut pools = Vec::with_capacity(plan.counters.len());
        for counter in &plan.counters {
            pools.push(match counter.is_asked().then(|| grants.next()).flatten() {
                None => Pool::NotAsked,
                Some(Err(error)) => Pool::Failed(error),
                Some(Ok(Grant { hits, total })) => Pool::Granted(Hits {
                    left: hits,
                    before: total.saturating_sub(hits),
                    total,
                }),
            });
        }
        Self {
            plan,
            pools,
            over: false,
        }
    }

    /// Distributes the hits to the jobs, and completes the deltas.
    pub(super) fn share(
        &mut self,
        options: &Options,
        now: Timestamp,
        tallies: &mut [LimitDelta],
    ) -> Vec<Acquired> {
        let plan = self.plan;
        let mut owned: Vec<Option<Arc<OwnedCounter>>> = vec![None; plan.counters.len()];
        let mut tallies = tallies.iter_mut();
        let mut all = Vec::with_capacity(plan.jobs.len());
        for jobs in &plan.jobs {
            let portion = self.portion(jobs);
            let mut statuses: SmallVec<[Status; 4]> =
                jobs.limits.iter().map(|_| answer::NO_LIMIT).collect();
            for ((place, counted), tally) in jobs.counted().zip(&mut tallies) {
                let need = jobs.need_of[place];
                let event = self.event(jobs, &portion, need, counted.hits);
                let code = complete(tally, counted, event, options.near_limit_ratio);
                statuses[jobs.needs[need].limit].code = code;
            }
            self.over |= answer::overall(jobs.limits, &statuses, options) == Code::OverLimit;
            all.push(permits(plan, jobs, &portion, &mut owned));
        }
        // The remaining hits are known after all jobs have their share.
        let taken = |(jobs, permits): (&Jobs<'_>, Permits)| {
            let closed = self.closed(jobs, now);
            Acquired {
                permits,
                left: if closed.is_some() {
                    Remaining::Jobs(0)
                } else {
                    self.left(jobs)
                },
                closed,
            }
        };
        plan.jobs.iter().zip(all).map(taken).collect()
    }

    /// Returns the share of jobs in the granted hits that no earlier job has.
    fn portion(&mut self, jobs: &Jobs<'_>) -> JobShare {
        let is_failed = |need: &Need| {
            self.plan.shut(need).is_none() && matches!(self.pools[need.counter], Pool::Failed(_))
        };
        let outcome = match jobs.outlook {
            Feasibility::Refused => Outcome::Refused,
            Feasibility::Open if jobs.needs.iter().any(is_failed) => Outcome::Failed,
            Feasibility::Open => Outcome::Shared,
        };
        if outcome != Outcome::Shared {
            return JobShare {
                outcome,
                times: 0,
                of_needs: jobs.needs.iter().map(|_| OfNeed::default()).collect(),
            };
        }
        let mut times = jobs.times;
        let mut of_quotas = None;
        let mut of_needs = SmallVec::<[OfNeed; 2]>::new();
        for need in &jobs.needs {
            let offered = self
                .granted(need)
                .map_or(0, |hits| hits.left / need.hits)
                .min(jobs.times.into());
            let offered = u32::try_from(offered).expect("at most the number of jobs");
            match need.part {
                NeedKind::Required => times = times.min(offered),
                NeedKind::Quota => of_quotas = of_quotas.max(Some(offered)),
                NeedKind::Optional => {}
            }
            of_needs.push(OfNeed {
                offered,
                charged: 0,
            });
        }
        let times = of_quotas.map_or(times, |of_quotas| times.min(of_quotas));
        for (need, of_need) in jobs.needs.iter().zip(&mut of_needs) {
            of_need.charged = times.min(of_need.offered);
            if let Pool::Granted(hits) = &mut self.pools[need.counter] {
                hits.left -= need.hits * u64::from(of_need.charged);
            }
        }
        JobShare {
            outcome,
            times,
            of_needs,
        }
    }

    /// Returns the result of jobs at one limit, which charges `hits` for one job.
    fn event(&mut self, jobs: &Jobs<'_>, portion: &JobShare, need: usize, hits: u64) -> Event {
        let OfNeed { offered, charged } = portion.of_needs[need];
        let need = &jobs.needs[need];
        let is_unbounded = self.plan.counters[need.counter].is_unbounded();
        match (
            portion.outcome,
            self.plan.shut(need),
            &mut self.pools[need.counter],
        ) {
            (Outcome::Failed, ..) => Event::Failed,
            (_, Some(why @ BlockReason::Paused(_)), _) => Event::Shut {
                why,
                jobs: jobs.times,
            },
            (_, Some(why), _) => Event::Shut {
                why,
                jobs: if is_unbounded {
                    portion.times
                } else {
                    jobs.times
                },
            },
            (Outcome::Shared, None, Pool::Granted(pool)) => {
                let before = pool.before;
                pool.before = before.saturating_add(hits.saturating_mul(charged.into()));
                Event::Counted {
                    before,
                    charged,
                    over: jobs.times - offered,
                }
            }
            _ => Event::NotAsked,
        }
    }

    /// Returns the number of further jobs that may run.
    fn left(&self, jobs: &Jobs<'_>) -> Remaining {
        let room_of = |part: NeedKind| {
            jobs.needs
                .iter()
                .filter(move |need| need.part == part)
                .map(|need| self.room(need))
        };
        let room = room_of(NeedKind::Required)
            .chain(room_of(NeedKind::Quota).max())
            .min();
        room.map_or(Remaining::Unlimited, Remaining::Jobs)
    }

    /// Returns the number of further jobs that a counter has room for, after the refund of its
    /// rest.
    fn room(&self, need: &Need) -> u64 {
        let limit = u64::from(self.plan.counters[need.counter].counted.requests_per_unit);
        self.granted(need).map_or(0, |hits| {
            (limit + hits.left).saturating_sub(hits.total) / need.hits
        })
    }

    /// Returns the limit that makes further jobs wait. `None` if one more may run.
    fn closed(&self, jobs: &Jobs<'_>, now: Timestamp) -> Option<Exhausted> {
        let mut closed = Vec::new();
        let mut of_quotas = Vec::new();
        let mut open_quotas = 0;
        for need in &jobs.needs {
            let reason = self.reason(need, now);
            let by = |reason| Exhausted {
                limit: need.limit,
                reason,
            };
            match (need.part, reason) {
                (NeedKind::Quota, None) => open_quotas += 1,
                (_, None) => {}
                (
                    NeedKind::Quota,
                    Some(reason @ (Reason::UsedUp { .. } | Reason::Paused { .. } | Reason::Never)),
                ) => of_quotas.push(by(reason)),
                (_, Some(reason)) => closed.push(by(reason)),
            }
        }
        // The first quota that has room again is enough.
        if open_quotas == 0 {
            closed.extend(of_quotas.into_iter().min_by_key(Exhausted::wait));
        }
        closed.extend(jobs.paused.map(|(limit, until)| Exhausted {
            limit,
            reason: paused(until, now),
        }));
        closed.into_iter().max_by_key(Exhausted::wait)
    }

    fn reason(&self, need: &Need, now: Timestamp) -> Option<Reason> {
        let used_up = || self.plan.counters[need.counter].used_up(now);
        match (&self.pools[need.counter], self.plan.shut(need)) {
            (Pool::Failed(error), None) => Some(Reason::Failed(error.clone())),
            (_, Some(BlockReason::Paused(until))) => Some(paused(until, now)),
            _ if need.part == NeedKind::Optional => None,
            (_, Some(BlockReason::Never)) => Some(Reason::Never),
            (_, Some(BlockReason::KnownOver)) => Some(used_up()),
            (Pool::Granted(_), None) if self.room(need) == 0 => Some(used_up()),
            (Pool::Granted(_) | Pool::NotAsked, None) => None,
        }
    }

    fn granted(&self, need: &Need) -> Option<&Hits> {
        match &self.pools[need.counter] {
            Pool::Granted(hits) => Some(hits),
            Pool::NotAsked | Pool::Failed(_) => None,
        }
    }

    /// Returns the value of a counter after its grant.
    pub(super) fn total(&self, counter: usize) -> Option<u64> {
        match &self.pools[counter] {
            Pool::Granted(hits) => Some(hits.total),
            Pool::NotAsked | Pool::Failed(_) => None,
        }
    }

    /// Returns the hits that no job has.
    pub(super) fn surplus(&self) -> Refunds {
        let mut returns = Refunds::default();
        for (counter, pool) in self.plan.counters.iter().zip(&self.pools) {
            if let Pool::Granted(hits) = pool
                && hits.left > 0
            {
                returns.add_hits(Arc::new(counter.to_owned()), hits.left);
            }
        }
        returns
    }
}

impl Exhausted {
    /// Returns how long the limit lets no job run, if this is known.
    fn wait(&self) -> Duration {
        match self.reason {
            Reason::Failed(_) => Duration::ZERO,
            Reason::UsedUp { after } => after,
            Reason::Paused { after } => after.unwrap_or(Duration::MAX),
            Reason::Never => Duration::MAX,
        }
    }
}

fn paused(until: Timestamp, now: Timestamp) -> Reason {
    let left = Duration::from_micros(until.0.saturating_sub(now.0));
    Reason::Paused {
        after: (until != NEVER).then_some(left),
    }
}

/// Returns the permits of jobs. `owned` has the counters that earlier jobs use.
fn permits(
    plan: &Plan<'_>,
    jobs: &Jobs<'_>,
    portion: &JobShare,
    owned: &mut [Option<Arc<OwnedCounter>>],
) -> Permits {
    let charged = jobs
        .needs
        .iter()
        .zip(&portion.of_needs)
        .filter(|(_, of_need)| of_need.charged > 0);
    let charge = |(need, of_need): (&Need, &OfNeed)| {
        let counter = owned[need.counter]
            .get_or_insert_with(|| Arc::new(plan.counters[need.counter].to_owned()));
        JobCharge {
            counter: counter.clone(),
            hits: need.hits,
            times: of_need.charged,
        }
    };
    Permits::new(portion.times, charged.map(charge).collect())
}
