//! Counts the hits of one request: in the store, with the help of the local cache.

use std::time::Instant;

use smallvec::{SmallVec, smallvec};

use super::{AppliedLimits, Count, CountedLimit, CounterName, Counts, Limiter, OverLimitKeys};
use crate::model::{Seconds, Window};
use crate::store::{Charge, CounterChange, StoreError, Totals};

type Charges<'p> = SmallVec<[Charge<'p>; 4]>;

impl Limiter {
    /// Charges the counters of a request and returns their counts.
    ///
    /// Counters that the local cache has as over their limit are not sent to the store.
    pub(super) async fn count(
        &self,
        applied: &AppliedLimits<'_>,
        now: Seconds,
        deadline: Instant,
    ) -> Result<Counts, StoreError> {
        let mut counts = Counts::new();
        let mut charges = Charges::new();
        for counted in applied.counted() {
            let key = applied.key(counted);
            if counted.is_paused() || self.is_known_over(counted, key, now) {
                counts.push(Count::KnownOver);
            } else {
                counts.push(Count::After(0));
                charges.push(self.charge(counted, key));
            }
        }
        if self.state.options.over_limit_keys == OverLimitKeys::StopIncrement {
            self.spare_counters_within_limit(applied, &counts, &mut charges, deadline)
                .await?;
        }
        let totals = self.store.add(&charges, now, deadline).await?;
        self.keep_totals(applied, &mut counts, totals, now);
        Ok(counts)
    }

    /// Puts the totals of the store into the counts of charged counters and into the local cache.
    fn keep_totals(
        &self,
        applied: &AppliedLimits<'_>,
        counts: &mut Counts,
        totals: Totals,
        now: Seconds,
    ) {
        let charged = applied
            .counted()
            .zip(counts)
            .filter(|(_, count)| **count != Count::KnownOver);
        for ((counted, count), total) in charged.zip(totals) {
            *count = Count::After(total);
            self.update_cache(applied.key(counted), counted, total, now);
        }
    }

    pub(super) fn is_known_over(
        &self,
        counted: &CountedLimit<'_>,
        key: &[u8],
        now: Seconds,
    ) -> bool {
        let Some(cache) = &self.state.local_cache else {
            return false;
        };
        let counter = CounterName {
            key,
            unit: counted.window.unit,
        };
        counted.change == CounterChange::Add
            && cache.is_over(counter, counted.requests_per_unit, now, &self.core.lookups)
    }

    #[inline]
    pub(super) fn charge<'p>(&self, counted: &CountedLimit<'_>, key: &'p [u8]) -> Charge<'p> {
        Charge {
            key,
            hits: i64::try_from(counted.hits)
                .expect("hits are at most MAX_COUNT when limits are looked up"),
            change: counted.change,
            window: counted.window,
            time_to_live: self.time_to_live(counted.window),
            requests_per_unit: counted.requests_per_unit,
            limit: counted
                .limit
                .map_or(0, |limit| std::ptr::from_ref(limit).addr()),
        }
    }

    /// Seconds until a store may expire a counter.
    #[inline]
    pub(super) fn time_to_live(&self, window: Window) -> u32 {
        let jitter = match self.state.options.expiration_jitter {
            0 => 0,
            bound => fastrand::u32(..bound),
        };
        window.unit.seconds().saturating_add(jitter)
    }

    /// If any counter of the request goes over its limit, sets the hits of counters that stay
    /// within their limit to zero. Refunds do not change.
    async fn spare_counters_within_limit(
        &self,
        applied: &AppliedLimits<'_>,
        counts: &Counts,
        charges: &mut Charges<'_>,
        deadline: Instant,
    ) -> Result<(), StoreError> {
        let goes_over = if counts.contains(&Count::KnownOver) {
            smallvec![false; charges.len()]
        } else {
            let goes_over = self.goes_over(applied, charges, deadline).await?;
            if !goes_over.contains(&true) {
                return Ok(());
            }
            goes_over
        };
        for (charge, goes_over) in charges.iter_mut().zip(goes_over) {
            if charge.change == CounterChange::Add && !goes_over {
                charge.hits = 0;
            }
        }
        Ok(())
    }

    /// Returns whether each charge would take its counter over the limit. Charges are those of all
    /// counted limits.
    async fn goes_over(
        &self,
        applied: &AppliedLimits<'_>,
        charges: &Charges<'_>,
        deadline: Instant,
    ) -> Result<SmallVec<[bool; 4]>, StoreError> {
        let reads: Charges<'_> = charges
            .iter()
            .filter(|charge| charge.change == CounterChange::Add)
            .copied()
            .collect();
        let mut stored = self.store.read(&reads, deadline).await?.into_iter();
        let goes_over = |counted: &CountedLimit<'_>| {
            counted.change == CounterChange::Add && {
                let total = stored.next().unwrap_or(0).saturating_add(counted.hits);
                total > u64::from(counted.requests_per_unit)
            }
        };
        Ok(applied.counted().map(goes_over).collect())
    }

    pub(super) fn update_cache(
        &self,
        key: &[u8],
        counted: &CountedLimit<'_>,
        total: u64,
        now: Seconds,
    ) {
        let Some(cache) = &self.state.local_cache else {
            return;
        };
        let counter = CounterName {
            key,
            unit: counted.window.unit,
        };
        match counted.change {
            CounterChange::Refund => cache.remove(counter),
            CounterChange::Add if total > u64::from(counted.requests_per_unit) => {
                cache.insert(counter, total, now)
            }
            CounterChange::Add => {}
        }
    }
}
