//! Units of rate limits for jobs: the limiter counts jobs together with requests. When limits
//! change, jobs that wait under a limit may be tried again.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tidegate_api::RateLimits;
use tidegate_ratelimit::{
    AcquireFacts, AcquireRequest, Acquired, Configuration, Entry, Exhausted, ExhaustedReason,
    LimitOverride, Limiter, OverrideEffect, OverrideError, OverrideTarget, Overrides, Permits,
    Reach, Timestamp, Units as Needs,
};
use tidegate_workflow::{
    BoxFuture, Limit, LimitExhausted, Limits as JobLimits, Receipt, UnitCounter, UnitGrant,
    UnitRequest,
};
use tracing::warn;

use crate::base::clock;
use crate::base::sync::lock;
use crate::rls::overrides::LimitOverrides;
use crate::rls::reload::LoadStatus;
use crate::telemetry::metrics::Shard;

/// Time after which a limit is tried again that could not be read, or that has no units in this
/// window.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Wait for a limit that is smaller than one job needs: only another configuration changes that.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);
/// Minimum interval between two warnings, in seconds.
const WARNING_INTERVAL_SECONDS: u64 = 60;

/// Factory of unit counters. It is called on the runtime of each thread.
pub(crate) type UnitCounters = Arc<dyn Fn() -> JobUnits + Send + Sync>;

/// Rate limits for workflows and their API. Clones share them.
#[derive(Clone)]
pub(crate) struct WorkflowLimits {
    /// Factory of unit counters for jobs.
    pub(crate) counters: UnitCounters,
    /// Rate limits that the API shows and changes.
    pub(crate) shown: RateLimits,
    /// Status of the latest load of their configuration.
    pub(crate) load_status: LoadStatus,
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
    async fn throttle_key(
        &self,
        needs: &LimitNeed,
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
            effect: OverrideEffect::Throttled(reach),
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

    async fn acquire_all(&self, wanted: Vec<UnitRequest>) -> Vec<UnitGrant> {
        let needs: Vec<(Vec<usize>, Vec<LimitNeed>)> = wanted.iter().map(limit_needs).collect();
        let limits: Vec<Vec<Needs<'_>>> = needs
            .iter()
            .map(|(_, each)| each.iter().map(LimitNeed::needs).collect())
            .collect();
        let requests: Vec<AcquireRequest<'_>> = limits
            .iter()
            .zip(&wanted)
            .map(|(limits, wanted)| AcquireRequest {
                limits,
                times: wanted.jobs,
            })
            .collect();
        let mut facts = AcquireFacts::default();
        let deadline = Instant::now() + self.timeout;
        let acquired = self
            .limiter
            .acquire(&requests, clock::now(), deadline, &mut facts)
            .await;
        self.count(&facts);
        let Ok(acquired) = acquired.inspect_err(|error| self.warn_failure(error)) else {
            return wanted.iter().map(|_| refused(0, RETRY_AFTER)).collect();
        };
        let each = acquired.into_iter().zip(&needs);
        each.map(|(acquired, (indices, _))| self.granted(acquired, indices))
            .collect()
    }

    fn granted(&self, acquired: Acquired, indices: &[usize]) -> UnitGrant {
        let Acquired {
            permits,
            exhausted: closed,
            ..
        } = acquired;
        let exhausted = closed.map(|closed| self.exhausted(closed, indices));
        let jobs = permits.times();
        let receipt: Receipt = Arc::new(Mutex::new(permits));
        UnitGrant {
            jobs,
            receipt: (jobs > 0).then_some(receipt),
            exhausted,
        }
    }

    /// When units of an exhausted limit are available, and when to request them again.
    fn exhausted(
        &self,
        Exhausted { limit, reason }: Exhausted,
        indices: &[usize],
    ) -> LimitExhausted {
        let (after, again) = match reason {
            // Units that one limit granted and another one refused are refunded within a moment.
            ExhaustedReason::UsedUp { after } if indices.len() > 1 => {
                (after, Some(after.min(RETRY_AFTER)))
            }
            ExhaustedReason::UsedUp { after } => (after, None),
            // A paused limit may be resumed at any time, and checking it again costs no call of the
            // store.
            ExhaustedReason::Paused { after } => {
                (after.unwrap_or(MAX_RETRY_AFTER), Some(RETRY_AFTER))
            }
            ExhaustedReason::Never => (MAX_RETRY_AFTER, Some(MAX_RETRY_AFTER)),
            ExhaustedReason::Failed(error) => {
                self.warn_failure(&error);
                (RETRY_AFTER, Some(RETRY_AFTER))
            }
        };
        LimitExhausted {
            limit_index: indices[limit],
            available_after: after,
            retry_after: again,
        }
    }

    fn count(&self, facts: &AcquireFacts) {
        self.metrics.decision("", &facts.counted);
        for (domain, times) in &facts.unknown_domains {
            self.metrics.unknown_domain(domain, *times);
        }
        if let Some(error) = &facts.refund_error {
            self.warn_failure(error);
        }
    }

    fn may_warn(&self) -> bool {
        let second = clock::now().0 / 1_000_000;
        let last = self.warned.load(Relaxed);
        second >= last + WARNING_INTERVAL_SECONDS && self.warned.swap(second, Relaxed) == last
    }

    fn warn_failure(&self, error: &dyn fmt::Display) {
        if self.may_warn() {
            warn!(%error, "units of rate limits could not be acquired or refunded for jobs: jobs with these limits wait");
        }
    }
}

impl UnitCounter for JobUnits {
    fn acquire(&self, wanted: Vec<UnitRequest>) -> BoxFuture<'_, Vec<UnitGrant>> {
        Box::pin(self.acquire_all(wanted))
    }

    fn throttle(&self, limits: Arc<JobLimits>, pause: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let (_, each) = limit_needs(&UnitRequest { limits, jobs: 0 });
            let needs: Vec<Needs<'_>> = each.iter().map(LimitNeed::needs).collect();
            let reaches = self.limiter.reach_when_throttled(&needs, clock::now());
            for (needs, reach) in each.iter().zip(reaches) {
                if let Err(error) = self.throttle_key(needs, reach, pause).await
                    && self.may_warn()
                {
                    warn!(%error, "a limit whose jobs were throttled could not be closed: they are handed out again");
                }
            }
        })
    }

    fn refund(&self, receipt: Receipt, jobs: u32) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let Some(permits) = receipt.downcast_ref::<Mutex<Permits>>() else {
                return;
            };
            let refunded = lock(permits).split_off(jobs);
            if let Err(error) = self
                .limiter
                .refund(vec![refunded], clock::now(), Instant::now() + self.timeout)
                .await
            {
                self.warn_failure(&error);
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
        exhausted: Some(LimitExhausted {
            limit_index: limit,
            available_after: after,
            retry_after: Some(after),
        }),
    }
}

/// Need of a job under one rate limit, in the types of the limiter.
struct LimitNeed {
    domain: String,
    entries: Vec<Entry>,
    hits: NonZeroU32,
}

impl LimitNeed {
    fn needs(&self) -> Needs<'_> {
        Needs {
            domain: &self.domain,
            entries: &self.entries,
            hits: self.hits,
        }
    }
}

/// The rate limits among the limits of jobs, with their indices.
fn limit_needs(wanted: &UnitRequest) -> (Vec<usize>, Vec<LimitNeed>) {
    let each = wanted
        .limits
        .as_slice()
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
                    LimitNeed {
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

/// Configuration and overrides at one time.
struct ActiveLimits {
    configuration: Option<Arc<Configuration>>,
    overrides: Arc<Overrides>,
}

impl ActiveLimits {
    fn from_limiter(limiter: &Limiter) -> Self {
        Self {
            configuration: limiter.configuration(),
            overrides: limiter.overrides(),
        }
    }

    fn equals(&self, other: &Self) -> bool {
        let address = |limits: &Self| limits.configuration.as_ref().map(Arc::as_ptr);
        let none = self.overrides.is_empty() && other.overrides.is_empty();
        address(self) == address(other) && (none || Arc::ptr_eq(&self.overrides, &other.overrides))
    }
}

/// Returns a function that reports whether the limits have changed since its last call. It only
/// compares pointers.
pub(super) fn limit_changes(limiter: Limiter) -> impl FnMut() -> bool {
    let mut last = ActiveLimits::from_limiter(&limiter);
    move || {
        let now = ActiveLimits::from_limiter(&limiter);
        let changed = !now.equals(&last);
        last = now;
        changed
    }
}
