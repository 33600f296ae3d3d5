//! Reads limits and counters without charging any.

use std::time::Instant;

use hashbrown::HashMap;
use smallvec::SmallVec;

use super::acquire::request::{AcquireRequest, Units};
use super::decision;
use super::{
    AppliedLimit, AppliedLimits, Code, Count, CountedLimit, Counts, Error, LimitDelta, Limiter,
    OverLimitKeys, Response,
};
use crate::model::{Request, Timestamp, Unit};
use crate::overrides::Reach;
use crate::store::{Charge, CounterChange, StoreError};

/// The use of a limit in its current window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    /// The name of the limit. Empty if it has none.
    pub name: Box<str>,
    /// Hits that the limit allows in a window.
    pub requests_per_unit: u32,
    /// The length of the window.
    pub unit: Unit,
    /// Counted hits. With those of refused requests they may exceed the limit.
    pub used: u64,
    /// Hits above which the limit is near its end.
    pub near_limit: u64,
    /// End of the window.
    pub ends_at: Timestamp,
}

impl Limiter {
    /// Returns what [`Self::check`] would answer at the time `now`, and charges nothing. Waits for
    /// the store until `deadline` at most.
    ///
    /// The local cache is not used: it may still have a counter as over its limit after a refund.
    ///
    /// # Errors
    /// The errors of [`Self::check`].
    ///
    /// # Cancellation
    /// Nothing changes in any case.
    pub async fn peek(
        &self,
        request: &Request,
        now: Timestamp,
        deadline: Instant,
    ) -> Result<Response, Error> {
        let active = self.active_for(request)?;
        let key_prefix = &self.state.options.key_prefix;
        let mut applied = AppliedLimits::for_request(&active, key_prefix, request, now)?;
        let mut tallies: Vec<LimitDelta> = applied.counted_mut().map(decision::new_delta).collect();
        let counts = self.expected_counts(&applied, deadline).await?;
        let statuses = self.decide(&applied, &counts, now.into(), &mut tallies);
        let response = self.answer(request, &applied, statuses);
        let code = if self.state.options.global_shadow_mode {
            Code::Ok
        } else {
            response.code
        };
        Ok(Response { code, ..response })
    }

    /// Returns the use of each of these limits at the time `now`. `None` if no hits are counted.
    /// All counters are read in one call, until `deadline` at most.
    ///
    /// # Errors
    /// There is no configuration, or the store fails.
    pub async fn usage(
        &self,
        limits: &[Units<'_>],
        now: Timestamp,
        deadline: Instant,
    ) -> Result<Vec<Option<Usage>>, Error> {
        let active = self.core.active().ok_or(Error::NoConfiguration)?;
        // Each limit is a separate request, so that none replaces another one.
        let requests: Vec<_> = limits
            .chunks(1)
            .map(|limits| AcquireRequest { limits, times: 0 })
            .collect();
        let key_prefix = &self.state.options.key_prefix;
        let applied = AppliedLimits::for_jobs(&active, key_prefix, &requests, now);
        let charge = |counted| self.charge(counted, applied.key(counted));
        let charges: Vec<_> = applied.counted().map(charge).collect();
        let mut used = self.store.read(&charges, deadline).await?.into_iter();
        let usage = |limit: &AppliedLimit<'_>| match limit {
            AppliedLimit::Counted(counted) => {
                Some(self.usage_of(counted, used.next().unwrap_or_default()))
            }
            _ => None,
        };
        Ok(applied.limits.iter().map(usage).collect())
    }

    fn usage_of(&self, counted: &CountedLimit<'_>, used: u64) -> Usage {
        let near_limit_ratio = self.state.options.near_limit_ratio;
        let name = counted.limit.map(|limit| limit.name.clone());
        Usage {
            name: name.unwrap_or_default(),
            requests_per_unit: counted.requests_per_unit,
            unit: counted.window.unit,
            used,
            near_limit: decision::near_limit(counted.requests_per_unit.into(), near_limit_ratio),
            ends_at: Timestamp(counted.window.end().0 * 1_000_000),
        }
    }

    /// Returns the callers that must wait after a job with these limits was throttled: for each
    /// limit by its rule, and only jobs if there is no rule.
    #[must_use]
    pub fn reach_when_throttled(&self, limits: &[Units<'_>], now: Timestamp) -> Vec<Reach> {
        let Some(active) = self.core.active() else {
            return vec![Reach::Jobs; limits.len()];
        };
        let job = [AcquireRequest { limits, times: 0 }];
        let prefix = &self.state.options.key_prefix;
        let applied = AppliedLimits::configured_for_jobs(&active.configuration, prefix, &job, now);
        let reach = |limit: &AppliedLimit<'_>| {
            if limit
                .configured()
                .is_some_and(|limit| limit.pause_when_throttled)
            {
                Reach::JobsAndRequests
            } else {
                Reach::Jobs
            }
        };
        applied.limits.iter().map(reach).collect()
    }

    async fn expected_counts(
        &self,
        applied: &AppliedLimits<'_>,
        deadline: Instant,
    ) -> Result<Counts, StoreError> {
        let charges: SmallVec<[Charge<'_>; 4]> = applied
            .counted()
            .map(|counted| self.charge(counted, applied.key(counted)))
            .collect();
        let stored = self.store.read(&charges, deadline).await?;
        let any_paused = applied.counted().any(|counted| counted.is_paused());
        let goes_over: SmallVec<[bool; 4]> = applied
            .counted()
            .zip(&stored)
            .map(|(counted, stored)| {
                let total = stored.saturating_add(counted.hits);
                !any_paused
                    && counted.change == CounterChange::Add
                    && total > u64::from(counted.requests_per_unit)
            })
            .collect();
        let spares = self.state.options.over_limit_keys == OverLimitKeys::StopIncrement
            && (any_paused || goes_over.contains(&true));
        // Of two descriptors with one counter, the second includes the hits of the first.
        let mut counters: HashMap<&[u8], u64> = HashMap::new();
        let mut counts = Counts::new();
        for (index, counted) in applied.counted().enumerate() {
            if counted.is_paused() {
                counts.push(Count::KnownOver);
                continue;
            }
            let count = counters
                .entry(applied.key(counted))
                .or_insert(stored[index]);
            *count = match counted.change {
                CounterChange::Add if spares && !goes_over[index] => *count,
                CounterChange::Add => count.saturating_add(counted.hits),
                CounterChange::Refund => count.saturating_sub(counted.hits),
            };
            counts.push(Count::After(*count));
        }
        Ok(counts)
    }
}
