//! The limiter: takes one request, returns one answer and the facts to count.

mod answer;
mod applied_limits;
mod counting;
mod decision;
mod local_cache;
mod metadata;
mod options;

use std::sync::Arc;
use std::time::Instant;

use arc_swap::ArcSwapOption;

pub use local_cache::LocalCacheStats;
pub use options::{Options, OverLimitKeys};

use crate::config::Configuration;
use crate::request::{Request, Timestamp};
use crate::response::{Checked, Code, Error, Facts, Response, Status, Tally};
use crate::store::Store;
use crate::window::Seconds;
use applied_limits::{AppliedLimit, AppliedLimits};
use counting::Counts;
use local_cache::LocalCache;

/// Decides requests. Clones share configuration, options and local cache.
#[derive(Debug, Clone)]
pub struct Limiter {
    state: Arc<State>,
    store: Store,
}

/// What all clones of a limiter share, whatever their stores.
#[derive(Debug)]
struct State {
    configuration: ArcSwapOption<Configuration>,
    options: Options,
    local_cache: Option<LocalCache>,
}

impl Limiter {
    /// Makes a limiter that has no configuration yet.
    #[must_use]
    pub fn new(store: Store, options: Options) -> Self {
        let local_cache = LocalCache::new(options.local_cache_bytes);
        let configuration = ArcSwapOption::empty();
        Self { state: Arc::new(State { configuration, options, local_cache }), store }
    }

    /// Makes a limiter with the same configuration, local cache and options that counts in another store.
    ///
    /// Each core has such a limiter, because each core has its own connections to the store.
    #[must_use]
    pub fn with_store(&self, store: Store) -> Self {
        Self { state: Arc::clone(&self.state), store }
    }

    /// Replaces the configuration of this limiter and of all its clones at once.
    ///
    /// A request that is being decided keeps the configuration that it began with.
    pub fn configure(&self, configuration: Configuration) {
        self.state.configuration.store(Some(Arc::new(configuration)));
    }

    /// Returns the current configuration.
    #[must_use]
    pub fn configuration(&self) -> Option<Arc<Configuration>> {
        self.state.configuration.load_full()
    }

    /// Decides one request at the time `now`. Waits for the store until `deadline` at most.
    ///
    /// The facts are complete even when the response is an error of the store: the hits that were asked for are counted.
    ///
    /// # Cancellation
    /// When the future is dropped before the store has answered, the counters may or may not have been changed, and the
    /// facts are lost.
    pub async fn check(&self, request: &Request, now: Timestamp, deadline: Instant) -> Checked {
        if request.domain.is_empty() {
            return refused(Error::EmptyDomain);
        }
        if request.descriptors.is_empty() {
            return refused(Error::NoDescriptors);
        }
        let Some(configuration) = self.configuration() else { return refused(Error::NoConfiguration) };
        let now = Seconds::from(now);
        let applied = match AppliedLimits::find(&configuration, &self.state.options.key_prefix, request, now) {
            Ok(applied) => applied,
            Err(error) => return refused(error),
        };
        match self.count(&applied, now, deadline).await {
            Ok(counts) => self.answer(request, &applied, &counts, now),
            Err(error) => Checked {
                facts: Facts {
                    tallies: applied.counted().map(decision::undecided).collect(),
                    domain_not_found: applied.domain_not_found,
                    global_shadow_mode: false,
                },
                response: Err(error.into()),
            },
        }
    }

    /// Returns the figures of the cache of exceeded limits, or `None` when the cache is off.
    #[must_use]
    pub fn local_cache_stats(&self) -> Option<LocalCacheStats> {
        self.state.local_cache.as_ref().map(LocalCache::stats)
    }

    fn answer(&self, request: &Request, applied: &AppliedLimits<'_>, counts: &Counts, now: Seconds) -> Checked {
        let options = &self.state.options;
        let (statuses, tallies) = self.decide(applied, counts, now);
        let overall = answer::overall(&applied.limits, &statuses, options);
        let global_shadow_mode = options.global_shadow_mode && overall == Code::OverLimit;
        let headers =
            if options.response_headers { answer::headers(&applied.limits, &statuses, options) } else { None };
        let metadata = || metadata::dynamic_metadata(request, &applied.limits, &statuses);
        let dynamic_metadata = options.dynamic_metadata.then(metadata);
        Checked {
            facts: Facts { tallies, domain_not_found: applied.domain_not_found, global_shadow_mode },
            response: Ok(Response {
                code: if global_shadow_mode { Code::Ok } else { overall },
                statuses,
                headers,
                dynamic_metadata,
            }),
        }
    }

    /// Decides each descriptor: one status per descriptor, one tally per counter.
    fn decide(&self, applied: &AppliedLimits<'_>, counts: &Counts, now: Seconds) -> (Vec<Status>, Vec<Tally>) {
        let near_limit_ratio = self.state.options.near_limit_ratio;
        let mut tallies = Vec::with_capacity(counts.len());
        let mut statuses = Vec::with_capacity(applied.limits.len());
        let mut counts = counts.iter();
        for limit in &applied.limits {
            statuses.push(match limit {
                AppliedLimit::None => answer::NO_LIMIT,
                AppliedLimit::Unlimited(_) => answer::UNLIMITED,
                AppliedLimit::Counted(counted) => {
                    let count = *counts.next().expect("there is one count for each counted limit");
                    let (status, tally) = decision::decide(counted, count, near_limit_ratio, now);
                    tallies.push(tally);
                    status
                }
            });
        }
        (statuses, tallies)
    }
}

/// The outcome of a request that was refused before any counter was touched.
fn refused(error: Error) -> Checked {
    Checked { facts: Facts::default(), response: Err(error) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemoryBounds, MemoryStore};

    #[test]
    fn a_check_may_run_on_any_thread() {
        fn is_send(_: impl Send) {}
        let limiter = Limiter::new(Store::Memory(MemoryStore::new(MemoryBounds::default())), Options::default());
        is_send(limiter.check(&Request::default(), Timestamp(0), Instant::now()));
        is_send(limiter.clone());
    }
}
