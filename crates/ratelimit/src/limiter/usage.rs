//! Reads how much of limits is used up, without charging any counter.

use std::time::Instant;

use super::acquire::{AcquireRequest, Units};
use super::applied_limits::{AppliedLimit, AppliedLimits};
use super::{ActiveConfig, Limiter, overridden};
use crate::request::Timestamp;
use crate::response::Error;
use crate::store::Charge;
use crate::tree::Unit;
use crate::window::Seconds;

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
    pub ends: Timestamp,
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
        let in_force = self.core.in_force().ok_or(Error::NoConfiguration)?;
        let ActiveConfig {
            configuration,
            overrides,
        } = &*in_force;
        // Each limit is a separate request, so that none replaces another one.
        let wanted: Vec<AcquireRequest<'_>> = limits
            .chunks(1)
            .map(|limits| AcquireRequest { limits, times: 0 })
            .collect();
        let second = Seconds::from(now);
        let mut applied = AppliedLimits::of_jobs(
            configuration,
            &self.state.options.key_prefix,
            &wanted,
            second,
        );
        if let Some(overrides) = overrides {
            overridden::alter_jobs(&mut applied, overrides, &wanted, now);
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
                ends: Timestamp(counted.window.end().0 * 1_000_000),
            })
        };
        Ok(applied.limits.iter().map(usage).collect())
    }
}
