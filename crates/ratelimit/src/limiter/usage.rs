//! Reads how much of limits is used up, without charging any counter.

use std::time::Instant;

use super::acquire::{AcquireRequest, Units};
use super::applied_limits::{AppliedLimit, AppliedLimits};
use super::response::Error;
use super::{ActiveConfig, Limiter, overridden};
use crate::model::request::Timestamp;
use crate::model::window::Seconds;
use crate::store::Charge;
use crate::tree::Unit;

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
    /// End of the window.
    pub ends_at: Timestamp,
}

impl Limiter {
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
        let ActiveConfig {
            configuration,
            overrides,
        } = &*active;
        // Each limit is a separate request, so that none replaces another one.
        let requests: Vec<AcquireRequest<'_>> = limits
            .chunks(1)
            .map(|limits| AcquireRequest { limits, times: 0 })
            .collect();
        let second = Seconds::from(now);
        let mut applied = AppliedLimits::for_jobs(
            configuration,
            &self.state.options.key_prefix,
            &requests,
            second,
        );
        if let Some(overrides) = overrides {
            overridden::apply_to_jobs(&mut applied, overrides, &requests, now);
        }
        let charges: Vec<Charge<'_>> = applied
            .counted()
            .map(|counted| self.charge(counted, applied.key(counted)))
            .collect();
        let mut used = self.store.read(&charges, deadline).await?.into_iter();
        let usage = |limit: &AppliedLimit<'_>| {
            let AppliedLimit::Counted(counted) = limit else {
                return None;
            };
            Some(Usage {
                name: counted
                    .limit
                    .map(|limit| limit.name.clone())
                    .unwrap_or_default(),
                requests_per_unit: counted.requests_per_unit,
                unit: counted.window.unit,
                used: used.next().unwrap_or_default(),
                ends_at: Timestamp(counted.window.end().0 * 1_000_000),
            })
        };
        Ok(applied.limits.iter().map(usage).collect())
    }
}
