//! Units for jobs: acquired in bulk before jobs run, from the counters that requests are counted
//! in.

pub(super) mod permits;
mod plan;
pub(super) mod request;
mod share;
mod usage_counts;

use std::time::Instant;

use hashbrown::HashMap;

use super::{AppliedLimits, CounterName, Error, Limiter, decision};
use crate::config::Configuration;
use crate::model::{Seconds, Timestamp};
use crate::store::StoreError;
use permits::{Permits, Refunds};
use plan::Plan;
use request::{AcquireFacts, AcquireRequest, Acquired, ExhaustedReason, Remaining};
use share::Shares;

impl Limiter {
    /// Acquires units for jobs at the time `now`: one answer for each of `requests`, in their
    /// order. Waits for the store until `deadline` at most. `facts` must be empty.
    ///
    /// The counters are those of [`Self::check`] for the same domain, entries and window, and this
    /// call takes no counter over its limit. A job whose limits have no room for it charges none of
    /// them. All counters are charged in one call. Hits that one limit grants to a job and another
    /// one refuses are offered to later requests, and the rest is refunded with a second call to
    /// the store.
    ///
    /// A pause stops jobs whatever the mode of the limit is, and also where there is no limit.
    /// Otherwise a limit in shadow mode counts and refuses nothing. Unlimited ones, and those
    /// without configuration, count nothing. Quotas refuse a job if all of them do, and each is
    /// charged as far as it has room. With counters in memcached, concurrent calls may exceed a
    /// limit, as requests may.
    ///
    /// # Errors
    /// There is no configuration. If the store fails, `Exhausted` has the error for the jobs
    /// concerned.
    ///
    /// # Cancellation
    /// If the future is dropped before the store has answered, units may have been charged that no
    /// job has. They are lost until their window ends.
    pub async fn acquire(
        &self,
        requests: &[AcquireRequest<'_>],
        now: Timestamp,
        deadline: Instant,
        facts: &mut AcquireFacts,
    ) -> Result<Vec<Acquired>, Error> {
        let active = self.core.active().ok_or(Error::NoConfiguration)?;
        let active = &**facts.counted.active_config.insert(active);
        let second = Seconds::from(now);
        let key_prefix = &self.state.options.key_prefix;
        let mut applied = AppliedLimits::for_jobs(active, key_prefix, requests, now);
        if applied.domain_not_found > 0 {
            facts.unknown_domains = unknown_domains(&active.configuration, requests);
        }
        facts.counted.tallies = applied.counted_mut().map(decision::new_delta).collect();
        let plan = Plan::new(self, &applied, requests, second);
        plan.multiply_hits(&mut facts.counted.tallies);
        let grants = self
            .store
            .acquire(&plan.bulk_charges(self), second, deadline)
            .await;
        let mut shares = Shares::new(&plan, grants);
        let acquired = shares.distribute(&self.state.options, now, &mut facts.counted.tallies);
        facts.counted.global_shadow_mode = self.state.options.global_shadow_mode && shares.over;
        self.cache_over_limit(&plan, &shares, second);
        self.record_in_sketch(requests, &acquired, now);
        let refunds = shares.surplus();
        if !refunds.is_empty() {
            facts.refund_error = self.send_refunds(&refunds, second, deadline).await.err();
        }
        Ok(acquired)
    }

    /// Refunds the units of jobs that did not run. Units whose window has ended are skipped.
    ///
    /// # Errors
    /// Some of the units may have been refunded. The others are lost until their window ends.
    ///
    /// # Cancellation
    /// The units may or may not be refunded.
    pub async fn refund(
        &self,
        permits: Vec<Permits>,
        now: Timestamp,
        deadline: Instant,
    ) -> Result<(), StoreError> {
        let now = Seconds::from(now);
        let mut refunds = Refunds::default();
        for permits in permits {
            refunds.add(permits, now);
        }
        self.send_refunds(&refunds, now, deadline).await
    }

    /// Records in the sketch the hits that were granted by limits that count, and the limits that
    /// make jobs wait.
    fn record_in_sketch(
        &self,
        requests: &[AcquireRequest<'_>],
        acquired: &[Acquired],
        now: Timestamp,
    ) {
        let pairs = || requests.iter().zip(acquired);
        let granted = pairs()
            .filter(|(_, acquired)| acquired.remaining != Remaining::Unlimited)
            .flat_map(|(requests, acquired)| {
                let times = u64::from(acquired.permits.times());
                requests
                    .limits
                    .iter()
                    .map(move |units| (units.key(), times * u64::from(units.hits.get())))
            });
        let refused = pairs().filter_map(|(requests, acquired)| {
            let exhausted = acquired
                .exhausted
                .as_ref()
                .filter(|exhausted| !matches!(exhausted.reason, ExhaustedReason::Failed(_)))?;
            (acquired.permits.times() < requests.times)
                .then(|| requests.limits[exhausted.limit].key())
        });
        self.core.sketch.record_jobs(granted, refused, now);
    }

    async fn send_refunds(
        &self,
        refunds: &Refunds,
        now: Seconds,
        deadline: Instant,
    ) -> Result<(), StoreError> {
        let charges = refunds.charges(|window| self.time_to_live(window));
        let added = self.store.add(&charges, now, deadline).await;
        // The cache is updated after the store, because a count that was read before the refund is
        // too high. This is done also if the store failed, because some hits may have been
        // refunded.
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

    /// Records in the local cache which unbounded counters are over their limit, as a check does.
    /// Hits that were refused to jobs are not in a counter, so the cache ignores them.
    fn cache_over_limit(&self, plan: &Plan<'_>, shares: &Shares<'_>, now: Seconds) {
        let unbounded = plan
            .counters
            .iter()
            .enumerate()
            .filter(|(_, counter)| counter.is_unbounded);
        for (place, counter) in unbounded {
            if let Some(total) = shares.total(place) {
                self.update_cache(counter.key, counter.counted, total, now);
            }
        }
    }
}

/// Returns the domains that are not configured, each with the number of limits that name it.
fn unknown_domains(
    configuration: &Configuration,
    requests: &[AcquireRequest<'_>],
) -> Vec<(String, u64)> {
    let mut unknown: HashMap<&str, u64> = HashMap::new();
    for units in requests.iter().flat_map(|request| request.limits) {
        if configuration.domain(units.domain).is_none() {
            *unknown.entry(units.domain).or_default() += 1;
        }
    }
    unknown
        .into_iter()
        .map(|(domain, times)| (domain.to_owned(), times))
        .collect()
}
