//! Decides which callers a throttled job makes wait.

use super::{AcquireRequest, Units};
use crate::limiter::applied_limits::{AppliedLimit, AppliedLimits, CountedLimit};
use crate::limiter::{ActiveConfig, Limiter};
use crate::model::request::Timestamp;
use crate::model::window::Seconds;
use crate::overrides::Reach;

impl Limiter {
    /// Returns the callers that must wait after a job with these limits was throttled: for each
    /// limit by its rule, and only jobs if there is no rule.
    #[must_use]
    pub fn reach_when_throttled(&self, limits: &[Units<'_>], now: Timestamp) -> Vec<Reach> {
        let Some(active) = self.core.active() else {
            return vec![Reach::Jobs; limits.len()];
        };
        let ActiveConfig { configuration, .. } = &*active;
        let job = [AcquireRequest { limits, times: 0 }];
        let prefix = &self.state.options.key_prefix;
        let applied = AppliedLimits::for_jobs(configuration, prefix, &job, Seconds::from(now));
        applied.limits.iter().map(reach).collect()
    }
}

fn reach(applied: &AppliedLimit<'_>) -> Reach {
    let rule = match applied {
        AppliedLimit::Counted(CountedLimit { limit, .. }) => *limit,
        AppliedLimit::Unlimited(limit) => Some(*limit),
        AppliedLimit::None | AppliedLimit::Paused(_) => None,
    };
    if rule.is_some_and(|rule| rule.pause_when_throttled) {
        Reach::JobsAndRequests
    } else {
        Reach::Jobs
    }
}
