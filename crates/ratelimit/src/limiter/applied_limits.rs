//! The limits that apply to a request: limit, window and counter of each descriptor, before any
//! counter is touched.

use std::ops::Range;

use hashbrown::HashSet;
use smallvec::SmallVec;

use super::acquire::request::AcquireRequest;
use super::overridden;
use super::{ActiveConfig, AppliedOverride, Error};
use crate::config::Configuration;
use crate::model::{Entry, Override, Request, Seconds, Timestamp, Unit, Window};
use crate::store::{CounterChange, MAX_COUNT, Scope, write_counter_key};
use crate::tree::{
    Level, Limit, LookupState, Rate, SharedValues, StatsKey, StepBudget, override_stats_key,
};

/// The limits that apply to a request.
#[derive(Debug)]
pub(super) struct AppliedLimits<'a> {
    /// One per descriptor, in their order.
    pub(super) limits: SmallVec<[AppliedLimit<'a>; 4]>,
    /// The number of descriptors whose domain is not configured.
    pub(super) domain_not_found: u64,
    /// All counter keys, one after the other.
    keys: Vec<u8>,
}

/// The limit that applies to one descriptor.
#[derive(Debug)]
pub(super) enum AppliedLimit<'a> {
    /// No limit matched, or another limit of the request replaces the one that did.
    None,
    /// The limit allows all hits, and none are counted.
    Unlimited(&'a Limit),
    /// The hits are counted.
    Counted(CountedLimit<'a>),
    /// No hits pass until then, and none are counted: a key without a limit that counts is paused.
    Paused(Timestamp),
}

/// A limit and the counter that its hits are added to.
#[derive(Debug)]
pub(super) struct CountedLimit<'a> {
    pub(super) requests_per_unit: u32,
    pub(super) window: Window,
    /// The configured limit; `None` when the request brought its own.
    pub(super) limit: Option<&'a Limit>,
    pub(super) stats_key: StatsKey,
    /// At most [`MAX_COUNT`].
    pub(super) hits: u64,
    pub(super) change: CounterChange,
    /// The overrides that apply to the limit.
    pub(super) applied_override: Option<Box<AppliedOverride>>,
    key: Range<usize>,
}

impl<'a> AppliedLimits<'a> {
    /// Finds the limit of every descriptor of a request, and applies the overrides.
    ///
    /// # Errors
    /// The override of a descriptor is invalid, or values are too long for the patterns of the
    /// configuration.
    pub(super) fn for_request(
        active: &'a ActiveConfig,
        key_prefix: &str,
        request: &Request,
        now: Timestamp,
    ) -> Result<Self, Error> {
        // 64 bytes hold a typical key; longer ones make the buffer grow.
        let keys = Vec::with_capacity(request.descriptors.len().min(64) * 64);
        let mut applied = Self {
            limits: SmallVec::new(),
            domain_not_found: 0,
            keys,
        };
        let lookup = Lookup {
            root: active.configuration.domain(&request.domain),
            scope: Scope {
                prefix: key_prefix,
                domain: &request.domain,
            },
            now: now.into(),
        };
        let mut probe = LookupState::new(StepBudget::for_request());
        for (index, descriptor) in request.descriptors.iter().enumerate() {
            // Hits above the maximum of a counter make the request over its limit. An error would
            // let it pass at a gateway that fails open.
            let hits = descriptor
                .hits_addend
                .unwrap_or(u64::from(request.hits_addend.max(1)))
                .min(MAX_COUNT);
            let change = if descriptor.is_negative_hits {
                CounterChange::Refund
            } else {
                CounterChange::Add
            };
            let query = LimitQuery {
                entries: &descriptor.entries,
                limit: descriptor.limit,
                hits,
                change,
            };
            let limit = lookup.limit(&query, &mut applied, &mut probe);
            applied
                .limits
                .push(limit.map_err(|invalid| invalid.into_error(index))?);
        }
        remove_replaced(&mut applied.limits, |_| "");
        if let Some(overrides) = &active.overrides {
            overridden::apply_to_request(&mut applied, overrides, request, now);
        }
        Ok(applied)
    }

    /// Finds the limits of jobs, and applies the overrides; see [`Self::configured_for_jobs`].
    pub(super) fn for_jobs(
        active: &'a ActiveConfig,
        key_prefix: &str,
        jobs: &[AcquireRequest<'_>],
        now: Timestamp,
    ) -> Self {
        let mut applied = Self::configured_for_jobs(&active.configuration, key_prefix, jobs, now);
        if let Some(overrides) = &active.overrides {
            overridden::apply_to_jobs(&mut applied, overrides, jobs, now);
        }
        applied
    }

    /// Finds the configured limits of jobs: those of the first job, then those of the second, and so on. Each
    /// has the hits of one job.
    pub(super) fn configured_for_jobs(
        configuration: &'a Configuration,
        key_prefix: &str,
        jobs: &[AcquireRequest<'_>],
        now: Timestamp,
    ) -> Self {
        let mut applied = Self {
            limits: SmallVec::new(),
            domain_not_found: 0,
            keys: Vec::new(),
        };
        // Jobs come from workers with a token, and a workflow has few limits: matching needs no
        // bound.
        let mut probe = LookupState::new(StepBudget::unbounded());
        for job in jobs {
            let first = applied.limits.len();
            for units in job.limits {
                let lookup = Lookup {
                    root: configuration.domain(units.domain),
                    scope: Scope {
                        prefix: key_prefix,
                        domain: units.domain,
                    },
                    now: now.into(),
                };
                let hits = u64::from(units.hits.get());
                let query = LimitQuery {
                    entries: units.entries,
                    limit: None,
                    hits,
                    change: CounterChange::Add,
                };
                // Only a limit that the query brings can be invalid.
                let limit = lookup
                    .limit(&query, &mut applied, &mut probe)
                    .unwrap_or(AppliedLimit::None);
                applied.limits.push(limit);
            }
            remove_replaced(&mut applied.limits[first..], |index| {
                job.limits[index].domain
            });
        }
        applied
    }

    /// Returns the counted limits, in the order of their descriptors.
    pub(super) fn counted(&self) -> impl Iterator<Item = &CountedLimit<'a>> {
        self.limits.iter().filter_map(|limit| match limit {
            AppliedLimit::Counted(counted) => Some(counted),
            _ => None,
        })
    }

    /// Returns the counted limits for changes, in the order of their descriptors.
    pub(super) fn counted_mut(&mut self) -> impl Iterator<Item = &mut CountedLimit<'a>> {
        self.limits.iter_mut().filter_map(|limit| match limit {
            AppliedLimit::Counted(counted) => Some(counted),
            _ => None,
        })
    }

    /// Returns the counter key of a limit.
    pub(super) fn key(&self, counted: &CountedLimit<'_>) -> &[u8] {
        &self.keys[counted.key.clone()]
    }
}

/// Removes the limits that another limit of the same request or job, and of the same domain,
/// replaces by name. Removed and unlimited limits replace others, too.
fn remove_replaced<'d>(limits: &mut [AppliedLimit<'_>], domain_of: impl Fn(usize) -> &'d str) {
    if limits
        .iter()
        .filter_map(AppliedLimit::configured)
        .all(|limit| limit.replaces.is_empty())
    {
        return;
    }
    // A set, because a request may have many descriptors.
    let mut replaced: HashSet<(&str, &str)> = HashSet::new();
    for (index, applied) in limits.iter().enumerate() {
        let names = applied
            .configured()
            .map_or(&[][..], |limit| &limit.replaces);
        replaced.extend(names.iter().map(|name| (domain_of(index), &**name)));
    }
    for (index, applied) in limits.iter_mut().enumerate() {
        if let AppliedLimit::Counted(CountedLimit {
            limit: Some(limit), ..
        }) = applied
            && replaced.contains(&(domain_of(index), &*limit.name))
        {
            *applied = AppliedLimit::None;
        }
    }
}

impl<'a> AppliedLimit<'a> {
    /// Returns the configured limit, if there is one.
    pub(super) fn configured(&self) -> Option<&'a Limit> {
        match self {
            Self::None | Self::Paused(_) => None,
            Self::Unlimited(limit) => Some(limit),
            Self::Counted(counted) => counted.limit,
        }
    }
}

/// Reason why the limit of a descriptor cannot be looked up.
#[derive(Debug, Clone, Copy)]
enum LookupError {
    /// The limit in the request has this invalid unit.
    Unit(i32),
    /// Matching its values and those of earlier descriptors with patterns takes too many steps.
    Values,
}

impl LookupError {
    fn into_error(self, descriptor: usize) -> Error {
        match self {
            Self::Unit(unit) => Error::InvalidOverride { descriptor, unit },
            Self::Values => Error::LongValues { descriptor },
        }
    }
}

/// The look-up of one limit.
#[derive(Debug, Clone, Copy)]
struct LimitQuery<'r> {
    entries: &'r [Entry],
    /// A limit in the request.
    limit: Option<Override>,
    hits: u64,
    change: CounterChange,
}

/// Parameters that the look-ups of all descriptors of a request share.
#[derive(Debug, Clone, Copy)]
struct Lookup<'a, 'r> {
    /// `None` when the domain is not configured.
    root: Option<&'a Level>,
    scope: Scope<'r>,
    now: Seconds,
}

impl<'a> Lookup<'a, '_> {
    /// Returns the limit that applies to a descriptor.
    ///
    /// # Errors
    /// The request has a limit with an invalid unit, or its values are too long for the patterns.
    // Inlined in both callers, it would make a decision about 50 instructions longer.
    #[inline(never)]
    fn limit(
        &self,
        query: &LimitQuery<'_>,
        applied: &mut AppliedLimits<'a>,
        probe: &mut LookupState,
    ) -> Result<AppliedLimit<'a>, LookupError> {
        let Some(root) = self.root else {
            applied.domain_not_found += 1;
            return Ok(AppliedLimit::None);
        };
        let entries = query.entries;
        let keys = &mut applied.keys;
        let mut counted =
            |requests_per_unit, unit: Unit, shared: &SharedValues<'_>, limit, stats_key| {
                let window = Window::containing(unit, self.now);
                let start = keys.len();
                write_counter_key(keys, &self.scope, entries, shared, window.start);
                AppliedLimit::Counted(CountedLimit {
                    requests_per_unit,
                    window,
                    limit,
                    stats_key,
                    hits: query.hits,
                    change: query.change,
                    applied_override: None,
                    key: start..keys.len(),
                })
            };
        if let Some(limit) = query.limit {
            let unit = Unit::from_number(limit.unit).ok_or(LookupError::Unit(limit.unit))?;
            let stats_key = override_stats_key(self.scope.domain, entries);
            return Ok(counted(
                limit.requests_per_unit,
                unit,
                &SharedValues::new(),
                None,
                stats_key,
            ));
        }
        let Some(found) = root.find(self.scope.domain, entries, probe) else {
            return if probe.steps.is_used_up() {
                Err(LookupError::Values)
            } else {
                Ok(AppliedLimit::None)
            };
        };
        Ok(match found.limit.rate {
            Rate::Unlimited { .. } => AppliedLimit::Unlimited(found.limit),
            Rate::PerUnit {
                requests_per_unit,
                unit,
            } => counted(
                requests_per_unit,
                unit,
                &found.shared,
                Some(found.limit),
                found.stats_key,
            ),
        })
    }
}

#[cfg(test)]
impl CountedLimit<'_> {
    pub(super) fn for_test(
        window: Window,
        requests_per_unit: u32,
        hits: u64,
        change: CounterChange,
    ) -> Self {
        let stats_key = StatsKey::default();
        Self {
            requests_per_unit,
            window,
            limit: None,
            stats_key,
            hits,
            change,
            applied_override: None,
            key: 0..0,
        }
    }
}
