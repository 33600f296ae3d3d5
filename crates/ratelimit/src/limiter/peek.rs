//! Predicts the answer to a request, without charging any counter.

use std::time::Instant;

use hashbrown::HashMap;
use smallvec::SmallVec;

use super::applied_limits::AppliedLimits;
use super::decision::{self, Count};
use super::hit_counts::Counts;
use super::options::OverLimitKeys;
use super::response::{Code, Error, LimitDelta, Response};
use super::{ActiveConfig, Limiter, overridden};
use crate::model::request::{Request, Timestamp};
use crate::model::window::Seconds;
use crate::store::{Charge, CounterChange, StoreError};

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
        if request.domain.is_empty() {
            return Err(Error::EmptyDomain);
        }
        if request.descriptors.is_empty() {
            return Err(Error::NoDescriptors);
        }
        let active = self.core.active().ok_or(Error::NoConfiguration)?;
        let ActiveConfig {
            configuration,
            overrides,
        } = &*active;
        let second = Seconds::from(now);
        let mut applied = AppliedLimits::find(
            configuration,
            &self.state.options.key_prefix,
            request,
            second,
        )?;
        if let Some(overrides) = overrides {
            overridden::apply_to_request(&mut applied, overrides, request, now);
        }
        let mut tallies: Vec<LimitDelta> = applied.counted_mut().map(decision::new_delta).collect();
        let counts = self.expected_counts(&applied, deadline).await?;
        let statuses = self.decide(&applied, &counts, second, &mut tallies);
        let response = self.answer(request, &applied, statuses);
        let code = if self.state.options.global_shadow_mode {
            Code::Ok
        } else {
            response.code
        };
        Ok(Response { code, ..response })
    }

    /// Returns the counts that [`Self::count`] would return.
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
