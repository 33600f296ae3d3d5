//! The door: one request in, one answer and its facts out.

mod answer;
mod attribution;
mod local_cache;
mod metadata;
mod options;
mod plan;

use std::sync::Arc;
use std::time::Instant;

use arc_swap::ArcSwapOption;
use smallvec::{SmallVec, smallvec};

pub use local_cache::LocalCacheStats;
pub use options::{Options, OverLimitKeys};

use crate::config::Configuration;
use crate::request::{Request, Timestamp};
use crate::response::{Checked, Code, Error, Facts, Response};
use crate::store::{Change, Charge, Store, StoreError};
use crate::window::Seconds;
use attribution::Count;
use local_cache::LocalCache;
use plan::{Counted, Plan, Slot};

/// Decides requests. A clone shares everything.
#[derive(Debug, Clone)]
pub struct Limiter {
    shared: Arc<Shared>,
    store: Store,
}

#[derive(Debug)]
struct Shared {
    configuration: ArcSwapOption<Configuration>,
    options: Options,
    local_cache: Option<LocalCache>,
}

/// One per counter of a plan, in their order.
type Counts = SmallVec<[Count; 4]>;
type Charges<'p> = SmallVec<[Charge<'p>; 4]>;

impl Limiter {
    /// A limiter without configuration.
    #[must_use]
    pub fn new(store: Store, options: Options) -> Self {
        let local_cache = LocalCache::new(options.local_cache_bytes);
        let configuration = ArcSwapOption::empty();
        Self { shared: Arc::new(Shared { configuration, options, local_cache }), store }
    }

    /// Same configuration, local cache and options, another store: one limiter per core, each with its own connections.
    #[must_use]
    pub fn with_store(&self, store: Store) -> Self {
        Self { shared: Arc::clone(&self.shared), store }
    }

    /// Replaces the configuration, at once and for all clones. Requests under way end with the one they began with.
    pub fn configure(&self, configuration: Configuration) {
        self.shared.configuration.store(Some(Arc::new(configuration)));
    }

    /// The configuration in force.
    #[must_use]
    pub fn configuration(&self) -> Option<Arc<Configuration>> {
        self.shared.configuration.load_full()
    }

    /// Decides one request at `now`; store commands are given up at `deadline`.
    ///
    /// The facts are complete also when there is no answer: hits count as asked for before the store is.
    ///
    /// # Cancellation
    /// When the future is dropped before the store answered, counters may or may not have been charged, and the facts
    /// are lost.
    pub async fn check(&self, request: &Request, now: Timestamp, deadline: Instant) -> Checked {
        let refuse = |error| Checked { facts: Facts::default(), response: Err(error) };
        if request.domain.is_empty() {
            return refuse(Error::EmptyDomain);
        }
        if request.descriptors.is_empty() {
            return refuse(Error::NoDescriptors);
        }
        let Some(configuration) = self.configuration() else {
            return refuse(Error::NoConfiguration);
        };
        let now = Seconds::from(now);
        let plan = match Plan::new(&configuration, &self.shared.options.key_prefix, request, now) {
            Ok(plan) => plan,
            Err(error) => return refuse(error),
        };
        match self.count(&plan, now, deadline).await {
            Ok(counts) => self.answer(request, &plan, &counts, now),
            Err(error) => Checked {
                facts: Facts {
                    tallies: plan.counted().map(attribution::asked).collect(),
                    domain_not_found: plan.domain_not_found,
                    global_shadow_mode: false,
                },
                response: Err(error.into()),
            },
        }
    }

    /// Gauges of the over-limit cache; none when it is off.
    #[must_use]
    pub fn local_cache_stats(&self) -> Option<LocalCacheStats> {
        self.shared.local_cache.as_ref().map(LocalCache::stats)
    }

    /// Charges the counters of a plan, and keeps the local cache up to date.
    async fn count(&self, plan: &Plan<'_>, now: Seconds, deadline: Instant) -> Result<Counts, StoreError> {
        let mut counts = Counts::new();
        let mut charges = Charges::new();
        for counted in plan.counted() {
            let key = plan.key(counted);
            let known_over = counted.change == Change::Charge
                && self.shared.local_cache.as_ref().is_some_and(|cache| cache.contains(key, now));
            if known_over {
                counts.push(Count::KnownOver);
            } else {
                counts.push(Count::After(0));
                charges.push(self.charge(counted, key));
            }
        }
        if self.shared.options.over_limit_keys == OverLimitKeys::StopIncrement {
            self.stop_increment(plan, &counts, &mut charges, deadline).await?;
        }
        let totals = self.store.add(&charges, now, deadline).await?;
        let asked = plan.counted().zip(&mut counts).filter(|(_, count)| **count != Count::KnownOver);
        for ((counted, count), total) in asked.zip(totals) {
            *count = Count::After(total);
            self.remember(plan.key(counted), counted, total, now);
        }
        Ok(counts)
    }

    fn charge<'p>(&self, counted: &Counted<'_>, key: &'p [u8]) -> Charge<'p> {
        let jitter = match self.shared.options.expiration_jitter {
            0 => 0,
            bound => fastrand::u32(..bound),
        };
        Charge {
            key,
            hits: i64::try_from(counted.hits).expect("the plan refuses more hits"),
            change: counted.change,
            window: counted.window,
            time_to_live: counted.window.unit.seconds().saturating_add(jitter),
        }
    }

    /// Leaves out the hits of counters that stay within their limit while another one of the request does not. Refunds
    /// are done in any case.
    async fn stop_increment(
        &self,
        plan: &Plan<'_>,
        counts: &Counts,
        charges: &mut Charges<'_>,
        deadline: Instant,
    ) -> Result<(), StoreError> {
        let mut goes_over: SmallVec<[bool; 4]> = smallvec![false; charges.len()];
        let mut any = counts.contains(&Count::KnownOver);
        if !any {
            let reads: Charges<'_> = charges.iter().filter(|charge| charge.change == Change::Charge).copied().collect();
            let mut stored = self.store.read(&reads, deadline).await?.into_iter();
            for (counted, goes_over) in plan.counted().zip(&mut goes_over) {
                if counted.change == Change::Charge {
                    let total = stored.next().unwrap_or(0).saturating_add(counted.hits);
                    *goes_over = total > u64::from(counted.requests_per_unit);
                    any |= *goes_over;
                }
            }
        }
        if any {
            for (charge, goes_over) in charges.iter_mut().zip(goes_over) {
                if charge.change == Change::Charge && !goes_over {
                    charge.hits = 0;
                }
            }
        }
        Ok(())
    }

    fn remember(&self, key: &[u8], counted: &Counted<'_>, total: u64, now: Seconds) {
        let Some(cache) = &self.shared.local_cache else { return };
        match counted.change {
            Change::Refund => cache.remove(key),
            Change::Charge if total > u64::from(counted.requests_per_unit) => {
                cache.insert(key, Seconds(now.0 + u64::from(counted.window.unit.seconds())));
            }
            Change::Charge => {}
        }
    }

    fn answer(&self, request: &Request, plan: &Plan<'_>, counts: &Counts, now: Seconds) -> Checked {
        let options = &self.shared.options;
        let mut counts = counts.iter();
        let mut tallies = Vec::with_capacity(counts.len());
        let mut statuses = Vec::with_capacity(plan.slots.len());
        for slot in &plan.slots {
            statuses.push(match slot {
                Slot::NoLimit => answer::NO_LIMIT,
                Slot::Unlimited(_) => answer::UNLIMITED,
                Slot::Counted(counted) => {
                    let count = *counts.next().expect("one count per counter of the plan");
                    let (status, tally) = attribution::attribute(counted, count, options.near_limit_ratio, now);
                    tallies.push(tally);
                    status
                }
            });
        }
        let overall = answer::overall(&plan.slots, &statuses, options);
        let global_shadow_mode = options.global_shadow_mode && overall == Code::OverLimit;
        let headers = match options.response_headers {
            true => answer::headers(&plan.slots, &statuses, options),
            false => None,
        };
        let metadata = || metadata::dynamic_metadata(request, &plan.slots, &statuses);
        let dynamic_metadata = options.dynamic_metadata.then(metadata);
        Checked {
            facts: Facts { tallies, domain_not_found: plan.domain_not_found, global_shadow_mode },
            response: Ok(Response {
                code: if global_shadow_mode { Code::Ok } else { overall },
                statuses,
                headers,
                dynamic_metadata,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryStore;

    #[test]
    fn a_check_may_run_on_any_thread() {
        fn is_send(_: impl Send) {}
        let limiter = Limiter::new(Store::Memory(MemoryStore::new(1)), Options::default());
        is_send(limiter.check(&Request::default(), Timestamp(0), Instant::now()));
        is_send(limiter.clone());
    }
}
