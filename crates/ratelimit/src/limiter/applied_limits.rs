//! The limits that apply to a request: limit, window and counter of each descriptor, before any counter is touched.

use std::ops::Range;

use hashbrown::HashSet;
use smallvec::SmallVec;

use crate::config::Configuration;
use crate::request::{Descriptor, Request};
use crate::response::Error;
use crate::store::{Change, Scope, write_counter_key};
use crate::tree::{Level, Limit, Rate, SharedValues, StatsKey, Unit, override_stats_key};
use crate::window::{Seconds, Window};

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
    /// The limit lets everything pass; nothing is counted.
    Unlimited(&'a Limit),
    /// The hits are counted.
    Counted(CountedLimit<'a>),
}

/// A limit and the counter that its hits are added to.
#[derive(Debug)]
pub(super) struct CountedLimit<'a> {
    pub(super) requests_per_unit: u32,
    pub(super) window: Window,
    /// The configured limit; `None` when the request brought its own.
    pub(super) limit: Option<&'a Limit>,
    pub(super) stats_key: StatsKey,
    /// At most `i64::MAX`: no counter holds more.
    pub(super) hits: u64,
    pub(super) change: Change,
    key: Range<usize>,
}

impl<'a> AppliedLimits<'a> {
    /// Finds the limit of every descriptor of a request.
    ///
    /// # Errors
    /// The override or the hits of a descriptor are invalid.
    pub(super) fn find(
        configuration: &'a Configuration,
        key_prefix: &str,
        request: &Request,
        now: Seconds,
    ) -> Result<Self, Error> {
        // 64 bytes hold a typical key; longer ones make the buffer grow.
        let keys = Vec::with_capacity(request.descriptors.len().min(64) * 64);
        let mut applied = Self { limits: SmallVec::new(), domain_not_found: 0, keys };
        let root = configuration.domain(&request.domain);
        let lookup = Lookup { root, scope: Scope { prefix: key_prefix, domain: &request.domain }, now };
        // 64 bytes hold a typical composite key.
        let mut probe = String::with_capacity(64);
        for (index, descriptor) in request.descriptors.iter().enumerate() {
            let hits = descriptor.hits_addend.unwrap_or(u64::from(request.hits_addend.max(1)));
            if i64::try_from(hits).is_err() {
                return Err(Error::InvalidHits { descriptor: index, hits });
            }
            let limit = lookup.limit(descriptor, hits, &mut applied, &mut probe);
            applied.limits.push(limit.map_err(|unit| Error::InvalidOverride { descriptor: index, unit })?);
        }
        applied.remove_replaced();
        Ok(applied)
    }

    /// The counted limits, in the order of their descriptors.
    pub(super) fn counted(&self) -> impl Iterator<Item = &CountedLimit<'a>> {
        self.limits.iter().filter_map(|limit| match limit {
            AppliedLimit::Counted(counted) => Some(counted),
            _ => None,
        })
    }

    /// As [`Self::counted`], to change them.
    pub(super) fn counted_mut(&mut self) -> impl Iterator<Item = &mut CountedLimit<'a>> {
        self.limits.iter_mut().filter_map(|limit| match limit {
            AppliedLimit::Counted(counted) => Some(counted),
            _ => None,
        })
    }

    /// The counter key of a limit.
    pub(super) fn key(&self, counted: &CountedLimit<'_>) -> &[u8] {
        &self.keys[counted.key.clone()]
    }

    /// Drops the limits that another limit of this request replaces by name. Limits that are dropped themselves, and
    /// unlimited ones, replace others too.
    fn remove_replaced(&mut self) {
        let limits = || self.limits.iter().filter_map(AppliedLimit::configured);
        if limits().all(|limit| limit.replaces.is_empty()) {
            return;
        }
        // A set, because a request may have many descriptors.
        let replaced: HashSet<&str> = limits().flat_map(|limit| limit.replaces.iter().map(|name| &**name)).collect();
        for applied in &mut self.limits {
            if let AppliedLimit::Counted(CountedLimit { limit: Some(limit), .. }) = applied
                && replaced.contains(&*limit.name)
            {
                *applied = AppliedLimit::None;
            }
        }
    }
}

impl<'a> AppliedLimit<'a> {
    /// The configured limit, if there is one.
    fn configured(&self) -> Option<&'a Limit> {
        match self {
            Self::None => None,
            Self::Unlimited(limit) => Some(limit),
            Self::Counted(counted) => counted.limit,
        }
    }
}

/// What the lookups of all descriptors of a request have in common.
#[derive(Debug, Clone, Copy)]
struct Lookup<'a, 'r> {
    /// `None` when the domain is not configured.
    root: Option<&'a Level>,
    scope: Scope<'r>,
    now: Seconds,
}

impl<'a> Lookup<'a, '_> {
    /// The limit that applies to a descriptor.
    ///
    /// # Errors
    /// The unit of the descriptor's override when it is not a valid unit.
    fn limit(
        &self,
        descriptor: &Descriptor,
        hits: u64,
        applied: &mut AppliedLimits<'a>,
        probe: &mut String,
    ) -> Result<AppliedLimit<'a>, i32> {
        let Some(root) = self.root else {
            applied.domain_not_found += 1;
            return Ok(AppliedLimit::None);
        };
        let change = if descriptor.is_negative_hits { Change::Refund } else { Change::Add };
        let mut counted = |requests_per_unit, unit: Unit, shared: &SharedValues<'_>, limit, stats_key| {
            let window = Window::at(unit, self.now);
            let start = applied.keys.len();
            write_counter_key(&mut applied.keys, &self.scope, &descriptor.entries, shared, window.start);
            let key = start..applied.keys.len();
            AppliedLimit::Counted(CountedLimit { requests_per_unit, window, limit, stats_key, hits, change, key })
        };
        if let Some(limit) = descriptor.limit {
            let unit = Unit::from_number(limit.unit).ok_or(limit.unit)?;
            let stats_key = override_stats_key(self.scope.domain, &descriptor.entries);
            return Ok(counted(limit.requests_per_unit, unit, &SharedValues::new(), None, stats_key));
        }
        let Some(found) = root.find(self.scope.domain, &descriptor.entries, probe) else {
            return Ok(AppliedLimit::None);
        };
        Ok(match found.limit.rate {
            Rate::Unlimited { .. } => AppliedLimit::Unlimited(found.limit),
            Rate::PerUnit { requests_per_unit, unit } => {
                counted(requests_per_unit, unit, &found.shared, Some(found.limit), found.stats_key)
            }
        })
    }
}

#[cfg(test)]
impl CountedLimit<'_> {
    pub(super) fn for_test(window: Window, requests_per_unit: u32, hits: u64, change: Change) -> Self {
        Self { requests_per_unit, window, limit: None, stats_key: StatsKey::default(), hits, change, key: 0..0 }
    }
}
