//! Applies overrides to the limits of requests and jobs.

use super::acquire::AcquireRequest;
use super::applied_limits::{AppliedLimit, AppliedLimits, CountedLimit};
use crate::overrides::{Effect, Factor, LimitOverride, Overrides, Reach};
use crate::request::{Entry, Request, Timestamp};
use crate::store::Change;

/// The end of an override without an end.
pub(super) const NEVER: Timestamp = Timestamp(u64::MAX);

/// The overrides that apply to a limit that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct AppliedOverride {
    /// End of a pause. No hits pass before it.
    pub(super) paused: Option<Timestamp>,
    pub(super) scaled: Option<Scaled>,
}

/// A scaled limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Scaled {
    factor: Factor,
    pub(super) until: Timestamp,
    /// The limit of the configuration.
    pub(super) configured: u32,
}

/// The kind of caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Caller {
    Request,
    Job,
}

/// The overrides at a time, for one kind of caller.
#[derive(Debug, Clone, Copy)]
struct Now<'o> {
    overrides: &'o Overrides,
    now: Timestamp,
    caller: Caller,
}

/// Applies the overrides to the limits of a request.
// Not inlined, because the path of a check without overrides would be longer with it.
#[cold]
#[inline(never)]
pub(super) fn alter_request(
    applied: &mut AppliedLimits<'_>,
    overrides: &Overrides,
    request: &Request,
    now: Timestamp,
) {
    let now = Now {
        overrides,
        now,
        caller: Caller::Request,
    };
    for (limit, descriptor) in applied.limits.iter_mut().zip(&request.descriptors) {
        now.alter(limit, &request.domain, &descriptor.entries);
    }
}

/// Applies the overrides to the limits of jobs.
pub(super) fn alter_jobs(
    applied: &mut AppliedLimits<'_>,
    overrides: &Overrides,
    wanted: &[AcquireRequest<'_>],
    now: Timestamp,
) {
    let now = Now {
        overrides,
        now,
        caller: Caller::Job,
    };
    let units = wanted.iter().flat_map(|wanted| wanted.limits);
    for (limit, units) in applied.limits.iter_mut().zip(units) {
        now.alter(limit, units.domain, units.entries);
    }
}

impl Now<'_> {
    fn alter(self, applied: &mut AppliedLimit<'_>, domain: &str, entries: &[Entry]) {
        let rule = match applied {
            AppliedLimit::Counted(CountedLimit {
                limit: Some(limit), ..
            })
            | AppliedLimit::Unlimited(limit) => Some(&*limit.stats_key),
            _ => None,
        };
        let mut alteration = AppliedOverride::default();
        let of_rule = rule
            .into_iter()
            .flat_map(|rule| self.overrides.of_rule(rule));
        // The scale of a key follows that of its rule, and replaces it.
        for each in of_rule.chain(self.overrides.of_key(domain, entries)) {
            self.add(&mut alteration, each);
        }
        match applied {
            AppliedLimit::Counted(counted) => counted.alter(alteration),
            AppliedLimit::None | AppliedLimit::Unlimited(_) | AppliedLimit::Paused(_) => {
                if let Some(until) = alteration.paused {
                    *applied = AppliedLimit::Paused(until);
                }
            }
        }
    }

    fn add(self, alteration: &mut AppliedOverride, each: &LimitOverride) {
        if each.has_ended(self.now) {
            return;
        }
        let until = each.until.unwrap_or(NEVER);
        match each.effect {
            Effect::Paused(reach) | Effect::Throttled(reach) => {
                if self.caller == Caller::Job || reach == Reach::JobsAndRequests {
                    alteration.paused = alteration.paused.max(Some(until));
                }
            }
            Effect::Scaled(factor) => {
                alteration.scaled = Some(Scaled {
                    factor,
                    until,
                    configured: 0,
                })
            }
        }
    }
}

impl CountedLimit<'_> {
    fn alter(&mut self, mut alteration: AppliedOverride) {
        if let Some(scaled) = &mut alteration.scaled {
            scaled.configured = self.requests_per_unit;
            self.requests_per_unit = scaled.factor.scale(self.requests_per_unit);
        }
        if alteration != AppliedOverride::default() {
            self.alteration = Some(Box::new(alteration));
        }
    }

    /// Returns the end of a pause.
    pub(super) fn paused(&self) -> Option<Timestamp> {
        self.alteration
            .as_ref()
            .and_then(|alteration| alteration.paused)
    }

    /// Returns whether a pause refuses the hits. Refunds are always made.
    pub(super) fn is_shut(&self) -> bool {
        self.change == Change::Add && self.paused().is_some()
    }

    /// Returns how the limit was scaled.
    pub(super) fn scaled(&self) -> Option<Scaled> {
        self.alteration
            .as_ref()
            .and_then(|alteration| alteration.scaled)
    }
}
