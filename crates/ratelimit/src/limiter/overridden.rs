//! Applies overrides to the limits of requests and jobs.

use super::acquire::request::AcquireRequest;
use super::{AppliedLimit, AppliedLimits, Caller, CountedLimit};
use crate::model::{Entry, Request, Timestamp};
use crate::overrides::{Factor, LimitOverride, OverrideEffect, Overrides, Reach};
use crate::store::CounterChange;

/// The end of an override without an end.
pub(super) const NO_END: Timestamp = Timestamp(u64::MAX);

/// The overrides that apply to a limit that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct AppliedOverride {
    /// End of a pause. No hits pass before it.
    pub(super) paused: Option<Timestamp>,
    pub(super) scaled: Option<ScaledLimit>,
}

/// A scaled limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ScaledLimit {
    factor: Factor,
    pub(super) until: Timestamp,
    /// The limit of the configuration.
    pub(super) configured: u32,
}

/// The overrides at a time, for one kind of caller.
#[derive(Debug, Clone, Copy)]
struct OverrideContext<'o> {
    overrides: &'o Overrides,
    now: Timestamp,
    caller: Caller,
}

/// Applies the overrides to the limits of a request.
// Not inlined, because the path of a check without overrides would be longer with it.
#[cold]
#[inline(never)]
pub(super) fn apply_to_request(
    applied: &mut AppliedLimits<'_>,
    overrides: &Overrides,
    request: &Request,
    context: Timestamp,
) {
    let context = OverrideContext {
        overrides,
        now: context,
        caller: Caller::Request,
    };
    for (limit, descriptor) in applied.limits.iter_mut().zip(&request.descriptors) {
        context.apply(limit, &request.domain, &descriptor.entries);
    }
}

/// Applies the overrides to the limits of jobs.
pub(super) fn apply_to_jobs(
    applied: &mut AppliedLimits<'_>,
    overrides: &Overrides,
    requests: &[AcquireRequest<'_>],
    context: Timestamp,
) {
    let context = OverrideContext {
        overrides,
        now: context,
        caller: Caller::Job,
    };
    let units = requests.iter().flat_map(|request| request.limits);
    for (limit, units) in applied.limits.iter_mut().zip(units) {
        context.apply(limit, units.domain, units.entries);
    }
}

impl OverrideContext<'_> {
    fn apply(self, applied: &mut AppliedLimit<'_>, domain: &str, entries: &[Entry]) {
        let mut combined = AppliedOverride::default();
        let rule_overrides = applied
            .configured()
            .into_iter()
            .flat_map(|limit| self.overrides.for_rule(&limit.stats_key));
        // The scale of a key follows that of its rule, and replaces it.
        for limit_override in rule_overrides.chain(self.overrides.for_key(domain, entries)) {
            self.add(&mut combined, limit_override);
        }
        match applied {
            AppliedLimit::Counted(counted) => counted.set_override(combined),
            AppliedLimit::None | AppliedLimit::Unlimited(_) | AppliedLimit::Paused(_) => {
                if let Some(until) = combined.paused {
                    *applied = AppliedLimit::Paused(until);
                }
            }
        }
    }

    fn add(self, combined: &mut AppliedOverride, limit_override: &LimitOverride) {
        if limit_override.has_ended(self.now) {
            return;
        }
        let until = limit_override.until.unwrap_or(NO_END);
        match limit_override.effect {
            OverrideEffect::Paused(reach) | OverrideEffect::Throttled(reach) => {
                if self.caller == Caller::Job || reach == Reach::JobsAndRequests {
                    combined.paused = combined.paused.max(Some(until));
                }
            }
            OverrideEffect::Scaled(factor) => {
                combined.scaled = Some(ScaledLimit {
                    factor,
                    until,
                    configured: 0,
                })
            }
        }
    }
}

impl CountedLimit<'_> {
    fn set_override(&mut self, mut applied: AppliedOverride) {
        if let Some(scaled) = &mut applied.scaled {
            scaled.configured = self.requests_per_unit;
            self.requests_per_unit = scaled.factor.scale(self.requests_per_unit);
        }
        if applied != AppliedOverride::default() {
            self.applied_override = Some(Box::new(applied));
        }
    }

    /// Returns the end of a pause.
    pub(super) fn paused_until(&self) -> Option<Timestamp> {
        self.applied_override
            .as_ref()
            .and_then(|applied| applied.paused)
    }

    /// Returns whether a pause refuses the hits. Refunds are always made.
    pub(super) fn is_paused(&self) -> bool {
        self.change == CounterChange::Add && self.paused_until().is_some()
    }

    /// Returns how the limit was scaled.
    pub(super) fn scaled(&self) -> Option<ScaledLimit> {
        self.applied_override
            .as_ref()
            .and_then(|applied| applied.scaled)
    }
}
