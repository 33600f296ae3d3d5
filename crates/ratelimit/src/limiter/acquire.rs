//! Units for jobs: taken in bulk before jobs run, from the counters in which requests are counted.

mod permits;
mod plan;
mod share;
mod usage_counts;

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use hashbrown::HashMap;

use super::applied_limits::AppliedLimits;
use super::local_cache::CounterName;
use super::{ActiveConfig, Limiter, decision, overridden};
use crate::config::Configuration;
use crate::request::{Entry, Timestamp};
use crate::response::{Error, Facts};
use crate::sketch::Key;
use crate::store::StoreError;
use crate::window::Seconds;
pub use permits::Permits;
use permits::Refunds;
use plan::Plan;
use share::Shares;

/// Units of one limit that a job needs.
#[derive(Debug, Clone, Copy)]
pub struct Units<'a> {
    /// The domain of the configuration to look in.
    pub domain: &'a str,
    /// The path to look up, outermost first.
    pub entries: &'a [Entry],
    /// Hits that one job costs.
    pub hits: NonZeroU32,
}

impl<'a> Units<'a> {
    fn key(&self) -> Key<'a> {
        Key {
            domain: self.domain,
            entries: self.entries,
        }
    }
}

/// Jobs that have the same limits. A job runs when all of these have room for it, and is charged to all of them.
#[derive(Debug, Clone, Copy)]
pub struct AcquireRequest<'a> {
    /// The limits.
    pub limits: &'a [Units<'a>],
    /// How many such jobs would run. With 0 nothing is charged, and the answer says whether one could.
    pub times: u32,
}

/// How many of the jobs may run, and whether it is of use to ask for more.
#[derive(Debug)]
pub struct Acquired {
    /// The units of the jobs that may run.
    pub permits: Permits,
    /// How many more of them may run now, as far as the counters said.
    pub left: Remaining,
    /// Why none may; `None` while one may. So it is there whenever fewer may run than were wanted.
    pub closed: Option<Exhausted>,
}

/// How many more jobs may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remaining {
    /// No limit that counts applies to them, or all that do are in shadow mode.
    Unlimited,
    /// So many, and at least one if nothing is closed.
    Jobs(u64),
}

/// A limit that lets no more of the jobs run. Of several, the one that does so for longest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exhausted {
    /// Its place in [`AcquireRequest::limits`].
    pub limit: usize,
    /// Why, and until when.
    pub reason: Reason,
}

/// Why a limit lets no more jobs run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// Its window is used up.
    UsedUp {
        /// The time to the end of the window: it is of no use to ask again before that.
        after: Duration,
    },
    /// An override lets no job run: it pauses the limit, or scales it below what one job needs.
    Paused {
        /// The time to its end; `None` when somebody has to remove it. It may be removed before that.
        after: Option<Duration>,
    },
    /// One job needs more hits than the limit allows in a window. Only another configuration changes that.
    Never,
    /// The store failed for this limit. Whether it charged anything is unknown; it is not given back, so that no limit is exceeded.
    Failed(StoreError),
}

/// What happened in one take, for the server's counters.
#[derive(Debug, Default)]
pub struct TakeFacts {
    /// One tally for each limit of a job that counts. Hits over the limit are those of jobs that have to wait.
    pub counted: Facts,
    /// Domains that are not configured, and how many limits of jobs named them.
    pub unknown_domains: Vec<(String, u64)>,
    /// Why units could not be given back that one limit granted and another one refused. They are lost until their window ends.
    pub lost: Option<StoreError>,
}

impl Limiter {
    /// Takes units for jobs at the time `now`: one answer for each of `wanted`, in their order. Waits for the store until `deadline`
    /// at most. `facts` are new ones.
    ///
    /// The counters are those in which [`Self::check`] counts requests with the same domain and entries, in the same window, and no
    /// counter goes over its limit by a take. A job whose limits have no room for it charges none of them. All counters are
    /// asked at once; what one limit grants to a job and another one refuses is offered to those of `wanted` that come later, and
    /// then given back with a second call to the store.
    ///
    /// A pause keeps jobs waiting whatever the mode of the limit is, and where there is no limit. Apart from that, a limit
    /// in shadow mode counts and refuses nothing. Unlimited ones, and those of which there is no configuration, count nothing.
    /// Quotas refuse a job when all of them do, and each is charged as far as it has room. With counters in memcached, takes at the
    /// same time may exceed a limit, as requests may.
    ///
    /// # Errors
    /// There is no configuration. When the store fails, [`Exhausted`] says so for the jobs that it concerns.
    ///
    /// # Cancellation
    /// When the future is dropped before the store has answered, units may have been charged that no job has. They are lost until
    /// their window ends.
    pub async fn acquire(
        &self,
        wanted: &[AcquireRequest<'_>],
        now: Timestamp,
        deadline: Instant,
        facts: &mut TakeFacts,
    ) -> Result<Vec<Acquired>, Error> {
        let in_force = self.core.in_force().ok_or(Error::NoConfiguration)?;
        let ActiveConfig {
            configuration,
            overrides,
        } = &**facts.counted.in_force.insert(in_force);
        let second = Seconds::from(now);
        let mut applied = AppliedLimits::of_jobs(
            configuration,
            &self.state.options.key_prefix,
            wanted,
            second,
        );
        if let Some(overrides) = overrides {
            overridden::alter_jobs(&mut applied, overrides, wanted, now);
        }
        if applied.domain_not_found > 0 {
            facts.unknown_domains = unknown_domains(configuration, wanted);
        }
        facts.counted.tallies = applied.counted_mut().map(decision::undecided).collect();
        let plan = Plan::new(self, &applied, wanted, second);
        plan.note_hits(&mut facts.counted.tallies);
        let grants = self.store.take(&plan.asks(self), second, deadline).await;
        let mut shares = Shares::new(&plan, grants);
        let taken = shares.share(&self.state.options, now, &mut facts.counted.tallies);
        facts.counted.global_shadow_mode = self.state.options.global_shadow_mode && shares.over;
        self.remember(&plan, &shares, second);
        self.note(wanted, &taken, now);
        let returns = shares.surplus();
        if !returns.is_empty() {
            facts.lost = self.put_back(&returns, second, deadline).await.err();
        }
        Ok(taken)
    }

    /// Gives units back of jobs that did not run. Those whose window has ended are not asked for.
    ///
    /// # Errors
    /// Some of the units may have been given back. The others are lost until their window ends.
    ///
    /// # Cancellation
    /// When the future is dropped, the units may or may not be given back.
    pub async fn refund(
        &self,
        permits: Vec<Permits>,
        now: Timestamp,
        deadline: Instant,
    ) -> Result<(), StoreError> {
        let now = Seconds::from(now);
        let mut returns = Refunds::default();
        for permits in permits {
            returns.add(permits, now);
        }
        self.put_back(&returns, now, deadline).await
    }

    /// Notes in the sketch what was granted of limits that count, and which of them keep jobs waiting.
    fn note(&self, wanted: &[AcquireRequest<'_>], taken: &[Acquired], now: Timestamp) {
        let both = || wanted.iter().zip(taken);
        let granted = both()
            .filter(|(_, taken)| taken.left != Remaining::Unlimited)
            .flat_map(|(wanted, taken)| {
                let times = u64::from(taken.permits.times());
                wanted
                    .limits
                    .iter()
                    .map(move |units| (units.key(), times * u64::from(units.hits.get())))
            });
        let refused = both().filter_map(|(wanted, taken)| {
            let closed = taken
                .closed
                .as_ref()
                .filter(|closed| !matches!(closed.reason, Reason::Failed(_)))?;
            (taken.permits.times() < wanted.times).then(|| wanted.limits[closed.limit].key())
        });
        self.core.sketch.note_jobs(granted, refused, now);
    }

    async fn put_back(
        &self,
        returns: &Refunds,
        now: Seconds,
        deadline: Instant,
    ) -> Result<(), StoreError> {
        let charges = returns.charges(|window| self.time_to_live(window));
        let added = self.store.add(&charges, now, deadline).await;
        // After the store, because a count that was read before the hits were given back is too high. Also when the store failed,
        // because some hits may have been given back.
        if let Some(cache) = &self.state.local_cache {
            charges.iter().for_each(|charge| {
                cache.remove(CounterName {
                    key: charge.key,
                    unit: charge.window.unit,
                })
            });
        }
        added.map(|_| ())
    }

    /// Notes in the local cache which counters that count without a bound are over their limit, as a check does. What was refused
    /// to jobs is not in a counter, so that the cache has nothing to do with it.
    fn remember(&self, plan: &Plan<'_>, shares: &Shares<'_>, now: Seconds) {
        let unbounded = plan
            .counters
            .iter()
            .enumerate()
            .filter(|(_, counter)| counter.is_unbounded());
        for (place, counter) in unbounded {
            if let Some(total) = shares.total(place) {
                self.update_cache(counter.key, counter.counted, total, now);
            }
        }
    }
}

/// The domains that are not configured, and how many limits name them.
fn unknown_domains(
    configuration: &Configuration,
    wanted: &[AcquireRequest<'_>],
) -> Vec<(String, u64)> {
    let mut unknown: HashMap<&str, u64> = HashMap::new();
    for units in wanted.iter().flat_map(|wanted| wanted.limits) {
        if configuration.domain(units.domain).is_none() {
            *unknown.entry(units.domain).or_default() += 1;
        }
    }
    unknown
        .into_iter()
        .map(|(domain, times)| (domain.to_owned(), times))
        .collect()
}
