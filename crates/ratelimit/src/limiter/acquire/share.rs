//! Distributes the granted hits: earlier jobs come first, and each job gets all or none of its
//! needs.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::permits::{JobCharge, OwnedCounter, Permits, Refunds};
use super::plan::{BlockReason, CounterNeed, NeedKind, Plan, PlannedJobs};
use super::request::{Acquired, Exhausted, ExhaustedReason, Remaining};
use super::usage_counts::{JobEvent, complete};
use crate::limiter::decision::answer;
use crate::limiter::{Code, LimitDelta, NO_END, Options, Status};
use crate::model::Timestamp;
use crate::store::{Grant, StoreError};

/// The hits that the counters granted, and the rest that no job has yet.
#[derive(Debug)]
pub(super) struct Shares<'p> {
    plan: &'p Plan<'p>,
    /// One pool for each counter.
    pools: Vec<GrantPool>,
    /// Whether jobs must wait, or would have to without global shadow mode.
    pub(super) over: bool,
}

#[derive(Debug)]
enum GrantPool {
    NotRequested,
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
    outcome: ShareOutcome,
    /// Number of jobs that have all their needs.
    times: u32,
    /// One share for each need.
    need_shares: SmallVec<[NeedShare; 2]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ShareOutcome {
    Shared,
    Refused,
    Failed,
}

#[derive(Debug, Clone, Copy, Default)]
struct NeedShare {
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
            pools.push(
                match counter.is_requested().then(|| grants.next()).flatten() {
                    None => GrantPool::NotRequested,
                    Some(Err(error)) => GrantPool::Failed(error),
                    Some(Ok(Grant { hits, total })) => GrantPool::Granted(Hits {
                        left: hits,
                        before: total.saturating_sub(hits),
                        total,
                    }),
                },
            );
        }
        Self {
            plan,
            pools,
            over: false,
        }
    }

    /// Distributes the hits to the jobs, and completes the deltas.
    pub(super) fn distribute(
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
            let share = self.share_of(jobs);
            let mut statuses: SmallVec<[Status; 4]> =
                jobs.limits.iter().map(|_| answer::NO_LIMIT).collect();
            for ((place, counted), tally) in jobs.counted().zip(&mut tallies) {
                let need = jobs.need_of[place];
                let event = self.job_event(jobs, &share, need, counted.hits);
                let code = complete(tally, counted, event, options.near_limit_ratio);
                statuses[jobs.needs[need].limit].code = code;
            }
            self.over |= answer::overall(jobs.limits, &statuses, options) == Code::OverLimit;
            all.push(permits(plan, jobs, &share, &mut owned));
        }
        // The remaining hits are known after all jobs have their share.
        let acquired = |(jobs, permits): (&PlannedJobs<'_>, Permits)| {
            let exhausted = self.exhausted(jobs, now);
            Acquired {
                permits,
                remaining: if exhausted.is_some() {
                    Remaining::Jobs(0)
                } else {
                    self.remaining(jobs)
                },
                exhausted,
            }
        };
        plan.jobs.iter().zip(all).map(acquired).collect()
    }

    /// Returns the share of jobs in the granted hits that no earlier job has.
    fn share_of(&mut self, jobs: &PlannedJobs<'_>) -> JobShare {
        let is_failed = |need: &CounterNeed| {
            self.plan.block_reason(need).is_none()
                && matches!(self.pools[need.counter], GrantPool::Failed(_))
        };
        let outcome = if jobs.is_refused {
            ShareOutcome::Refused
        } else if jobs.needs.iter().any(is_failed) {
            ShareOutcome::Failed
        } else {
            ShareOutcome::Shared
        };
        if outcome != ShareOutcome::Shared {
            return JobShare {
                outcome,
                times: 0,
                need_shares: jobs.needs.iter().map(|_| NeedShare::default()).collect(),
            };
        }
        let mut times = jobs.times;
        let mut quota_jobs = None;
        let mut need_shares = SmallVec::<[NeedShare; 2]>::new();
        for need in &jobs.needs {
            let offered = self
                .granted(need)
                .map_or(0, |hits| hits.left / need.hits)
                .min(jobs.times.into());
            let offered = u32::try_from(offered).expect("at most the number of jobs");
            match need.kind {
                NeedKind::Required => times = times.min(offered),
                NeedKind::Quota => quota_jobs = quota_jobs.max(Some(offered)),
                NeedKind::Optional => {}
            }
            need_shares.push(NeedShare {
                offered,
                charged: 0,
            });
        }
        let times = quota_jobs.map_or(times, |quota_jobs| times.min(quota_jobs));
        for (need, need_share) in jobs.needs.iter().zip(&mut need_shares) {
            need_share.charged = times.min(need_share.offered);
            if let GrantPool::Granted(hits) = &mut self.pools[need.counter] {
                hits.left -= need.hits * u64::from(need_share.charged);
            }
        }
        JobShare {
            outcome,
            times,
            need_shares,
        }
    }

    /// Returns the result of jobs at one limit, which charges `hits` for one job.
    fn job_event(
        &mut self,
        jobs: &PlannedJobs<'_>,
        share: &JobShare,
        need: usize,
        hits: u64,
    ) -> JobEvent {
        let NeedShare { offered, charged } = share.need_shares[need];
        let need = &jobs.needs[need];
        let is_unbounded = self.plan.counters[need.counter].is_unbounded;
        match (
            share.outcome,
            self.plan.block_reason(need),
            &mut self.pools[need.counter],
        ) {
            (ShareOutcome::Failed, ..) => JobEvent::Failed,
            (_, Some(reason), _) => JobEvent::Blocked {
                reason,
                jobs: if is_unbounded && !matches!(reason, BlockReason::Paused(_)) {
                    share.times
                } else {
                    jobs.times
                },
            },
            (ShareOutcome::Shared, None, GrantPool::Granted(pool)) => {
                let before = pool.before;
                pool.before = before.saturating_add(hits.saturating_mul(charged.into()));
                JobEvent::Counted {
                    before,
                    charged,
                    over: jobs.times - offered,
                }
            }
            _ => JobEvent::NotRequested,
        }
    }

    /// Returns the number of further jobs that may run.
    fn remaining(&self, jobs: &PlannedJobs<'_>) -> Remaining {
        let room_of = |kind: NeedKind| {
            jobs.needs
                .iter()
                .filter(move |need| need.kind == kind)
                .map(|need| self.room_for(need))
        };
        let room = room_of(NeedKind::Required)
            .chain(room_of(NeedKind::Quota).max())
            .min();
        room.map_or(Remaining::Unlimited, Remaining::Jobs)
    }

    /// Returns the number of further jobs that a counter has room for, after the refund of its
    /// rest.
    fn room_for(&self, need: &CounterNeed) -> u64 {
        let limit = u64::from(self.plan.counters[need.counter].counted.requests_per_unit);
        self.granted(need).map_or(0, |hits| {
            (limit + hits.left).saturating_sub(hits.total) / need.hits
        })
    }

    /// Returns the limit that makes further jobs wait. `None` if one more may run.
    fn exhausted(&self, jobs: &PlannedJobs<'_>, now: Timestamp) -> Option<Exhausted> {
        let mut exhausted = Vec::new();
        let mut exhausted_quotas = Vec::new();
        let mut open_quotas = 0;
        for need in &jobs.needs {
            let reason = self.reason(need, now);
            let by = |reason| Exhausted {
                limit: need.limit,
                reason,
            };
            match (need.kind, reason) {
                (NeedKind::Quota, None) => open_quotas += 1,
                (_, None) => {}
                (
                    NeedKind::Quota,
                    Some(
                        reason @ (ExhaustedReason::UsedUp { .. }
                        | ExhaustedReason::Paused { .. }
                        | ExhaustedReason::Never),
                    ),
                ) => exhausted_quotas.push(by(reason)),
                (_, Some(reason)) => exhausted.push(by(reason)),
            }
        }
        // The first quota that has room again is enough.
        if open_quotas == 0 {
            exhausted.extend(exhausted_quotas.into_iter().min_by_key(Exhausted::wait));
        }
        exhausted.extend(jobs.paused.map(|(limit, until)| Exhausted {
            limit,
            reason: paused(until, now),
        }));
        exhausted.into_iter().max_by_key(Exhausted::wait)
    }

    fn reason(&self, need: &CounterNeed, now: Timestamp) -> Option<ExhaustedReason> {
        let used_up = || self.plan.counters[need.counter].used_up(now);
        match (&self.pools[need.counter], self.plan.block_reason(need)) {
            (GrantPool::Failed(error), None) => Some(ExhaustedReason::Failed(error.clone())),
            (_, Some(BlockReason::Paused(until))) => Some(paused(until, now)),
            _ if need.kind == NeedKind::Optional => None,
            (_, Some(BlockReason::Never)) => Some(ExhaustedReason::Never),
            (_, Some(BlockReason::KnownOver)) => Some(used_up()),
            (GrantPool::Granted(_), None) if self.room_for(need) == 0 => Some(used_up()),
            (GrantPool::Granted(_) | GrantPool::NotRequested, None) => None,
        }
    }

    fn granted(&self, need: &CounterNeed) -> Option<&Hits> {
        match &self.pools[need.counter] {
            GrantPool::Granted(hits) => Some(hits),
            GrantPool::NotRequested | GrantPool::Failed(_) => None,
        }
    }

    /// Returns the value of a counter after its grant.
    pub(super) fn total(&self, counter: usize) -> Option<u64> {
        match &self.pools[counter] {
            GrantPool::Granted(hits) => Some(hits.total),
            GrantPool::NotRequested | GrantPool::Failed(_) => None,
        }
    }

    /// Returns the hits that no job has.
    pub(super) fn surplus(&self) -> Refunds {
        let mut refunds = Refunds::default();
        for (counter, pool) in self.plan.counters.iter().zip(&self.pools) {
            if let GrantPool::Granted(hits) = pool
                && hits.left > 0
            {
                refunds.add_hits(Arc::new(counter.to_owned()), hits.left);
            }
        }
        refunds
    }
}

impl Exhausted {
    /// Returns how long the limit lets no job run, if this is known.
    fn wait(&self) -> Duration {
        match self.reason {
            ExhaustedReason::Failed(_) => Duration::ZERO,
            ExhaustedReason::UsedUp { after } => after,
            ExhaustedReason::Paused { after } => after.unwrap_or(Duration::MAX),
            ExhaustedReason::Never => Duration::MAX,
        }
    }
}

fn paused(until: Timestamp, now: Timestamp) -> ExhaustedReason {
    let left = Duration::from_micros(until.0.saturating_sub(now.0));
    ExhaustedReason::Paused {
        after: (until != NO_END).then_some(left),
    }
}

/// Returns the permits of jobs. `owned` has the counters that earlier jobs use.
fn permits(
    plan: &Plan<'_>,
    jobs: &PlannedJobs<'_>,
    share: &JobShare,
    owned: &mut [Option<Arc<OwnedCounter>>],
) -> Permits {
    let charged = jobs
        .needs
        .iter()
        .zip(&share.need_shares)
        .filter(|(_, need_share)| need_share.charged > 0);
    let charge = |(need, need_share): (&CounterNeed, &NeedShare)| {
        let counter = owned[need.counter]
            .get_or_insert_with(|| Arc::new(plan.counters[need.counter].to_owned()));
        JobCharge {
            counter: counter.clone(),
            hits: need.hits,
            times: need_share.charged,
        }
    };
    Permits::new(share.times, charged.map(charge).collect())
}
