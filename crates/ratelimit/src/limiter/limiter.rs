//! The limiter: takes one request, returns one answer and the facts to count.

use std::sync::Arc;
use std::time::Instant;

use super::decision;
use super::{
    AppliedLimit, AppliedLimits, Code, Core, CoreActiveConfig, Cores, Counts, Error, Facts,
    KeyMinute, LimitDelta, LocalCache, LocalCacheStats, Options, Response, Sketch, Status,
};
use crate::config::Configuration;
use crate::model::{Request, Seconds, Timestamp};
use crate::overrides::{OverrideStore, Overrides};
use crate::store::{Store, StoreError};

/// Decides requests. Clones share one limiter; [`Self::with_store`] creates the limiter of another
/// core.
#[derive(Debug, Clone)]
pub struct Limiter {
    pub(super) core: Arc<Core>,
    pub(super) state: Arc<LimiterState>,
    pub(super) store: Store,
}

/// State that the limiters of all cores share. Checks only read it.
#[derive(Debug)]
pub(super) struct LimiterState {
    cores: Cores,
    pub(super) options: Options,
    pub(super) local_cache: Option<LocalCache>,
}

impl Limiter {
    /// Creates a limiter without a configuration.
    #[must_use]
    pub fn new(store: Store, options: Options) -> Self {
        let local_cache = LocalCache::new(options.local_cache_bytes);
        let state = Arc::new(LimiterState {
            cores: Cores::default(),
            options,
            local_cache,
        });
        Self {
            core: state.cores.add(),
            state,
            store,
        }
    }

    /// Creates a limiter for another core, with the same configuration, local cache and options,
    /// that counts in `store`.
    ///
    /// Each core has its own connections to a store, and its own references to the configuration:
    /// limiters that are created here write to no shared memory. They live as long as the first
    /// one.
    #[must_use]
    pub fn with_store(&self, store: Store) -> Self {
        Self {
            core: self.state.cores.add(),
            state: Arc::clone(&self.state),
            store,
        }
    }

    /// Replaces the configuration of the limiters of all cores.
    ///
    /// A request in progress keeps the configuration that it began with.
    pub fn configure(&self, configuration: impl Into<Arc<Configuration>>) {
        self.state.cores.configure(configuration.into());
    }

    /// Returns the current configuration. Takes a lock, so it is not for every request.
    #[must_use]
    pub fn configuration(&self) -> Option<Arc<Configuration>> {
        self.state.cores.configuration()
    }

    /// Replaces the overrides of the limiters of all cores. Each holds until its end, also in this
    /// process.
    ///
    /// A request in progress keeps the overrides that it began with.
    pub fn set_overrides(&self, overrides: Arc<Overrides>) {
        self.state.cores.set_overrides(overrides);
    }

    /// Returns the current overrides. Takes a lock, so it is not for every request.
    #[must_use]
    pub fn overrides(&self) -> Arc<Overrides> {
        self.state.cores.overrides()
    }

    /// Reads the stored overrides at the time `now`, sets them in the limiters of all cores, and
    /// returns them. Waits for the store until `deadline` at most.
    ///
    /// # Errors
    /// The store failed. The limiters keep their overrides.
    ///
    /// # Cancellation
    /// The limiters keep their overrides, or have the new ones.
    pub async fn refresh_overrides(
        &self,
        store: &OverrideStore,
        now: Timestamp,
        deadline: Instant,
    ) -> Result<Arc<Overrides>, StoreError> {
        loop {
            let current = self.overrides();
            let stored = store.read(&current, now, deadline).await?;
            // A concurrent refresh may have read newer overrides.
            if Arc::ptr_eq(&current, &stored)
                || self.state.cores.replace_overrides(&current, stored.clone())
            {
                return Ok(stored);
            }
        }
    }

    /// Decides one request at the time `now`. Waits for the store until `deadline` at most. `facts`
    /// must be empty.
    ///
    /// The facts are complete even if the response is an error of the store: they include the
    /// requested hits.
    ///
    /// # Errors
    /// The request is invalid, there is no configuration, or the store failed.
    ///
    /// # Cancellation
    /// If the future is dropped before the store has answered, the counters may have been changed.
    /// The facts then have the requested hits, as if the store failed. Before the call to the
    /// store, there are none.
    pub async fn check(
        &self,
        request: &Request,
        now: Timestamp,
        deadline: Instant,
        facts: &mut Facts,
    ) -> Result<Response, Error> {
        let moment = now;
        let now = Seconds::from(now);
        let active = &**facts.active_config.insert(self.active_for(request)?);
        let key_prefix = &self.state.options.key_prefix;
        let mut applied = AppliedLimits::for_request(active, key_prefix, request, moment)?;
        facts.domain_not_found = applied.domain_not_found;
        facts.tallies = applied.counted_mut().map(decision::new_delta).collect();
        let counts = self.count(&applied, now, deadline).await?;
        let statuses = self.decide(&applied, &counts, now, &mut facts.tallies);
        let response = self.answer(request, &applied, statuses);
        facts.global_shadow_mode =
            self.state.options.global_shadow_mode && response.code == Code::OverLimit;
        let code = if facts.global_shadow_mode {
            Code::Ok
        } else {
            response.code
        };
        self.core
            .sketch
            .record(request, code, &response.statuses, moment);
        Ok(Response { code, ..response })
    }

    /// Returns the keys with the most hits of all cores until the time `now`, and the latest
    /// refusals. Takes a lock of each core, so it is not for every request.
    #[must_use]
    pub fn sketch(&self, now: Timestamp) -> Sketch {
        self.state.cores.sketch(now)
    }

    /// Returns the keys that were counted in the previous minute, and in the current one so far.
    #[must_use]
    pub fn key_minutes(&self, now: Timestamp) -> [KeyMinute; 2] {
        self.state.cores.key_minutes(now)
    }

    /// Returns the counts of the cache of exceeded limits, or `None` if the cache is off.
    #[must_use]
    pub fn local_cache_stats(&self) -> Option<LocalCacheStats> {
        self.state
            .local_cache
            .as_ref()
            .map(|cache| cache.stats(&self.state.cores.lookups()))
    }

    /// Returns the active configuration for a request that can be decided.
    pub(super) fn active_for(&self, request: &Request) -> Result<CoreActiveConfig, Error> {
        if request.domain.is_empty() {
            return Err(Error::EmptyDomain);
        }
        if request.descriptors.is_empty() {
            return Err(Error::NoDescriptors);
        }
        self.core.active().ok_or(Error::NoConfiguration)
    }

    /// Joins the statuses to the answer, before global shadow mode.
    pub(super) fn answer(
        &self,
        request: &Request,
        applied: &AppliedLimits<'_>,
        statuses: Vec<Status>,
    ) -> Response {
        let options = &self.state.options;
        let headers = if options.response_headers {
            decision::answer::headers(&applied.limits, &statuses, options)
        } else {
            None
        };
        let metadata = || decision::metadata::dynamic_metadata(request, &applied.limits, &statuses);
        let dynamic_metadata = options.dynamic_metadata.then(metadata);
        let code = decision::answer::overall(&applied.limits, &statuses, options);
        Response {
            code,
            statuses,
            headers,
            dynamic_metadata,
        }
    }

    /// Decides each descriptor: one status per descriptor. Completes the deltas, one per counter.
    pub(super) fn decide(
        &self,
        applied: &AppliedLimits<'_>,
        counts: &Counts,
        now: Seconds,
        tallies: &mut [LimitDelta],
    ) -> Vec<Status> {
        let near_limit_ratio = self.state.options.near_limit_ratio;
        let mut counts = counts.iter().zip(tallies);
        let status = |limit: &AppliedLimit<'_>| match limit {
            AppliedLimit::None => decision::answer::NO_LIMIT,
            AppliedLimit::Unlimited(_) => decision::answer::UNLIMITED,
            AppliedLimit::Paused(_) => decision::answer::PAUSED,
            AppliedLimit::Counted(counted) => {
                let (count, tally) = counts
                    .next()
                    .expect("there is one count for each counted limit");
                decision::decide(counted, *count, near_limit_ratio, now, tally)
            }
        };
        applied.limits.iter().map(status).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limiter::{AcquireFacts, Permits};
    use crate::{MemoryBounds, MemoryStore};

    #[test]
    fn checks_and_takes_may_run_on_any_thread() {
        fn is_send(_: impl Send) {}
        let limiter = Limiter::new(
            Store::Memory(MemoryStore::new(MemoryBounds::default())),
            Options::default(),
        );
        is_send(limiter.check(
            &Request::default(),
            Timestamp(0),
            Instant::now(),
            &mut Facts::default(),
        ));
        is_send(limiter.peek(&Request::default(), Timestamp(0), Instant::now()));
        is_send(limiter.acquire(
            &[],
            Timestamp(0),
            Instant::now(),
            &mut AcquireFacts::default(),
        ));
        is_send(limiter.refund(vec![Permits::default()], Timestamp(0), Instant::now()));
        is_send(limiter.clone());
    }
}
