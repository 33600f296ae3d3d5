//! Units of rate limits for jobs: the limiter counts jobs together with requests.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tidegate_api::RateLimits;
use tidegate_ratelimit::{
    AcquireRequest, Acquired, Effect, Entry, Exhausted, LimitOverride, Limiter, OverrideError,
    OverrideTarget, Permits, Reach, Reason, TakeFacts, Timestamp, Units as Needs,
};
use tidegate_workflow::{
    Later, Limit, LimitExhausted, Limits as JobLimits, Receipt, UnitGrant, UnitRequest, Units,
};
use tracing::warn;

use crate::net::clock;
use crate::reload::LoadStatus;
use crate::rls::overrides::LimitOverrides;
use crate::telemetry::metrics::Shard;

/// Time after which a limit is tried again that could not be read, or that has no units in this
/// window.
const AGAIN: Duration = Duration::from_secs(1);
/// Wait for a limit that is smaller than one job needs: only another configuration changes that.
const NEVER: Duration = Duration::from_secs(60);
/// Minimum interval between two warnings, in seconds.
const BETWEEN_WARNINGS: u64 = 60;

/// Factory of unit counters, one for each thread.
#[derive(Clone)]
pub(crate) struct Counters(Arc<dyn Fn() -> JobUnits + Send + Sync>);

impl Counters {
    /// Creates a factory. `make` is called on the runtime of each thread.
    pub(crate) fn new(make: impl Fn() -> JobUnits + Send + Sync + 'static) -> Self {
        Self(Arc::new(make))
    }

    /// Creates the counter for the current runtime.
    pub(crate) fn of_thread(&self) -> Arc<dyn Units> {
        Arc::new((self.0)())
    }
}

impl fmt::Debug for Counters {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Counters").finish_non_exhaustive()
    }
}

/// Rate limits for workflows and their API. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    /// Factory of unit counters for jobs.
    pub(crate) counters: Counters,
    /// Rate limits that the API shows and changes.
    pub(crate) shown: RateLimits,
    /// Status of the latest load of their configuration.
    pub(crate) latest: LoadStatus,
}

/// Unit counter for the jobs of one thread.
pub(crate) struct JobUnits {
    limiter: Limiter,
    metrics: Arc<Shard>,
    overrides: LimitOverrides,
    timeout: Duration,
    warned: AtomicU64,
}

impl JobUnits {
    /// Creates a counter on the connections of `limiter`, which answers within `timeout`.
    pub(crate) fn new(
        limiter: Limiter,
        metrics: Arc<Shard>,
        overrides: LimitOverrides,
        timeout: Duration,
    ) -> Self {
        Self {
            limiter,
            metrics,
            overrides,
            timeout,
            warned: AtomicU64::new(0),
        }
    }

    /// Throttles the key of a rate limit for a time, at all servers.
    async fn throttle_one(
        &self,
        needs: &Owned,
        reach: Reach,
        pause: Duration,
    ) -> Result<(), OverrideError> {
        let now = clock::now();
        let pause = u64::try_from(pause.as_micros()).unwrap_or(u64::MAX);
        let throttled = LimitOverride {
            target: OverrideTarget::Key {
                domain: needs.domain.clone(),
                entries: needs.entries.clone(),
            },
            effect: Effect::Throttled(reach),
            until: Some(Timestamp(now.0.saturating_add(pause))),
            by: "a worker".to_owned(),
            at: now,
            reason: "a job was throttled".to_owned(),
        };
        self.overrides
            .store
            .put(&throttled, now, Instant::now() + self.timeout)
            .await?;
        Ok(self.overrides.refresh().await?)
    }

    async fn take_all(&self, wanted: Vec<UnitRequest>) -> Vec<UnitGrant> {
        let needs: Vec<(Vec<usize>, Vec<Owned>)> = wanted.iter().map(owned).collect();
        let limits: Vec<Vec<Needs<'_>>> = needs
            .iter()
            .map(|(_, each)| each.iter().map(Owned::needs).collect())
            .collect();
        let asked: Vec<AcquireRequest<'_>> = limits
            .iter()
            .zip(&wanted)
            .map(|(limits, wanted)| AcquireRequest {
                limits,
                times: wanted.jobs,
            })
            .collect();
        let mut facts = TakeFacts::default();
        let taken = self
            .limiter
            .acquire(
                &asked,
                clock::now(),
                Instant::now() + self.timeout,
                &mut facts,
            )
            .await;
        self.count(&facts);
        match taken {
            Ok(taken) => taken
                .into_iter()
                .zip(&needs)
                .map(|(taken, (places, _))| self.granted(taken, places))
                .collect(),
            Err(error) => {
                self.tell(&error);
                wanted.iter().map(|_| refused(0, AGAIN)).collect()
            }
        }
    }

    fn granted(&self, taken: Acquired, places: &[usize]) -> UnitGrant {
        let Acquired {
            permits, closed, ..
        } = taken;
        let no_room = closed.map(|Exhausted { limit, reason }| {
            let (after, again) = match reason {
                // Units that one limit granted and another one refused are refunded within a
                // moment.
                Reason::UsedUp { after } if places.len() > 1 => (after, Some(after.min(AGAIN))),
                Reason::UsedUp { after } => (after, None),
                // A paused limit may be resumed at any time, and checking it again costs no call of
                // the store.
                Reason::Paused { after } => (after.unwrap_or(NEVER), Some(AGAIN)),
                Reason::Never => (NEVER, Some(NEVER)),
                Reason::Failed(error) => {
                    self.tell(&error);
                    (AGAIN, Some(AGAIN))
                }
            };
            LimitExhausted {
                limit: places[limit],
                after,
                again,
            }
        });
        let jobs = permits.times();
        let receipt: Receipt = Arc::new(Mutex::new(permits));
        UnitGrant {
            jobs,
            receipt: (jobs > 0).then_some(receipt),
            no_room,
        }
    }

    fn count(&self, facts: &TakeFacts) {
        self.metrics.decision("", &facts.counted);
        for (domain, times) in &facts.unknown_domains {
            self.metrics.unknown_domain(domain, *times);
        }
        if let Some(error) = &facts.lost {
            self.tell(error);
        }
    }

    fn may_warn(&self) -> bool {
        let second = clock::now().0 / 1_000_000;
        let last = self.warned.load(Relaxed);
        second >= last + BETWEEN_WARNINGS && self.warned.swap(second, Relaxed) == last
    }

    fn tell(&self, error: &dyn fmt::Display) {
        if self.may_warn() {
            warn!(%error, "units of rate limits could not be acquired or refunded for jobs: jobs with these limits wait");
        }
    }
}

impl Units for JobUnits {
    fn acquire(&self, wanted: Vec<UnitRequest>) -> Later<'_, Vec<UnitGrant>> {
        Box::pin(self.take_all(wanted))
    }

    fn throttle(&self, limits: Arc<JobLimits>, pause: Duration) -> Later<'_, ()> {
        Box::pin(async move {
            let (_, each) = owned(&UnitRequest { limits, jobs: 0 });
            let needs: Vec<Needs<'_>> = each.iter().map(Owned::needs).collect();
            let reaches = self.limiter.reach_when_throttled(&needs, clock::now());
            for (needs, reach) in each.iter().zip(reaches) {
                if let Err(error) = self.throttle_one(needs, reach, pause).await
                    && self.may_warn()
                {
                    warn!(%error, "a limit whose jobs were throttled could not be closed: they are handed out again");
                }
            }
        })
    }

    fn give_back(&self, receipt: Receipt, jobs: u32) -> Later<'_, ()> {
        Box::pin(async move {
            let Some(permits) = receipt.downcast_ref::<Mutex<Permits>>() else {
                return;
            };
            let back = permits
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .split_off(jobs);
            if let Err(error) = self
                .limiter
                .refund(vec![back], clock::now(), Instant::now() + self.timeout)
                .await
            {
                self.tell(&error);
            }
        })
    }
}

impl fmt::Debug for JobUnits {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("JobUnits").finish_non_exhaustive()
    }
}

fn refused(limit: usize, after: Duration) -> UnitGrant {
    UnitGrant {
        jobs: 0,
        receipt: None,
        no_room: Some(LimitExhausted {
            limit,
            after,
            again: Some(after),
        }),
    }
}

/// Need of a job under one rate limit, in the types of the limiter.
struct Owned {
    domain: String,
    entries: Vec<Entry>,
    hits: NonZeroU32,
}

impl Owned {
    fn needs(&self) -> Needs<'_> {
        Needs {
            domain: &self.domain,
            entries: &self.entries,
            hits: self.hits,
        }
    }
}

/// The rate limits among the limits of jobs, with their indices.
fn owned(wanted: &UnitRequest) -> (Vec<usize>, Vec<Owned>) {
    let each = wanted
        .limits
        .each()
        .iter()
        .enumerate()
        .filter_map(|(at, limit)| match limit {
            Limit::Units {
                domain,
                entries,
                hits,
            } => {
                let entries = entries
                    .iter()
                    .map(|(key, value)| Entry {
                        key: key.clone(),
                        value: value.clone(),
                    })
                    .collect();
                Some((
                    at,
                    Owned {
                        domain: domain.clone(),
                        entries,
                        hits: NonZeroU32::new(*hits)?,
                    },
                ))
            }
            Limit::Concurrency { .. } => None,
        });
    each.unzip()
}
