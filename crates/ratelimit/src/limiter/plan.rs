//! What a request will charge: the limit, the window and the counter of every descriptor, before any counter is touched.

use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::config::Configuration;
use crate::request::{Descriptor, Request};
use crate::response::Error;
use crate::store::{Change, Scope, write_counter_key};
use crate::tree::{Level, Limit, Rate, Shared, Unit, override_stats_key};
use crate::window::{Seconds, Window};

/// What a request will charge.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    /// One per descriptor, in their order.
    pub(crate) slots: SmallVec<[Slot<'a>; 4]>,
    /// Descriptors whose domain is not configured.
    pub(crate) domain_not_found: u64,
    /// All counter keys, one after the other.
    keys: Vec<u8>,
}

/// What one descriptor will charge.
#[derive(Debug)]
pub(crate) enum Slot<'a> {
    /// Nothing: no limit matched, or another limit of the request replaces the one that did.
    NoLimit,
    /// Nothing: the limit is unlimited.
    Unlimited(&'a Limit),
    /// A counter.
    Counted(Counted<'a>),
}

/// A counter to charge, and the limit to hold it against.
#[derive(Debug)]
pub(crate) struct Counted<'a> {
    pub(crate) requests_per_unit: u32,
    pub(crate) window: Window,
    /// The configured limit; none for one that the request brings along.
    pub(crate) limit: Option<&'a Limit>,
    pub(crate) stats_key: Arc<str>,
    /// At most `i64::MAX`: no counter holds more.
    pub(crate) hits: u64,
    pub(crate) change: Change,
    key: Range<usize>,
}

impl<'a> Plan<'a> {
    /// Looks up every descriptor of a request.
    ///
    /// # Errors
    /// A descriptor whose override or hits make no sense.
    pub(crate) fn new(
        configuration: &'a Configuration,
        key_prefix: &str,
        request: &Request,
        now: Seconds,
    ) -> Result<Self, Error> {
        // 64 bytes hold a typical key; longer ones make the buffer grow.
        let keys = Vec::with_capacity(request.descriptors.len().min(64) * 64);
        let mut plan = Self { slots: SmallVec::new(), domain_not_found: 0, keys };
        let root = configuration.domain(&request.domain);
        let lookup = Lookup { root, scope: Scope { prefix: key_prefix, domain: &request.domain }, now };
        let mut probe = String::with_capacity(64);
        for (index, descriptor) in request.descriptors.iter().enumerate() {
            let hits = descriptor.hits_addend.unwrap_or(u64::from(request.hits_addend.max(1)));
            if i64::try_from(hits).is_err() {
                return Err(Error::InvalidHits { descriptor: index, hits });
            }
            let slot = lookup.slot(descriptor, hits, &mut plan, &mut probe);
            plan.slots.push(slot.map_err(|unit| Error::InvalidOverride { descriptor: index, unit })?);
        }
        plan.remove_replaced();
        Ok(plan)
    }

    /// The counters to charge, in the order of their descriptors.
    pub(crate) fn counted(&self) -> impl Iterator<Item = &Counted<'a>> {
        self.slots.iter().filter_map(|slot| match slot {
            Slot::Counted(counted) => Some(counted),
            _ => None,
        })
    }

    /// The name of a counter.
    pub(crate) fn key(&self, counted: &Counted<'_>) -> &[u8] {
        &self.keys[counted.key.clone()]
    }

    /// Drops the limits whose name a limit of this request replaces. Limits that are dropped, or unlimited, replace too.
    fn remove_replaced(&mut self) {
        let mut replaced: SmallVec<[&'a str; 4]> = SmallVec::new();
        for limit in self.slots.iter().filter_map(Slot::limit) {
            replaced.extend(limit.replaces.iter().map(|name| &**name));
        }
        if replaced.is_empty() {
            return;
        }
        for slot in &mut self.slots {
            if let Slot::Counted(Counted { limit: Some(limit), .. }) = slot
                && replaced.contains(&&*limit.name)
            {
                *slot = Slot::NoLimit;
            }
        }
    }
}

impl<'a> Slot<'a> {
    /// The configured limit, if there is one.
    fn limit(&self) -> Option<&'a Limit> {
        match self {
            Self::NoLimit => None,
            Self::Unlimited(limit) => Some(limit),
            Self::Counted(counted) => counted.limit,
        }
    }
}

/// Where to look, for all descriptors of a request.
#[derive(Debug, Clone, Copy)]
struct Lookup<'a, 'r> {
    /// None when the domain is not configured.
    root: Option<&'a Level>,
    scope: Scope<'r>,
    now: Seconds,
}

impl<'a> Lookup<'a, '_> {
    /// What a descriptor will charge, or the unit of its override when that is not one.
    fn slot(
        &self,
        descriptor: &Descriptor,
        hits: u64,
        plan: &mut Plan<'a>,
        probe: &mut String,
    ) -> Result<Slot<'a>, i32> {
        let Some(root) = self.root else {
            plan.domain_not_found += 1;
            return Ok(Slot::NoLimit);
        };
        let change = if descriptor.is_negative_hits { Change::Refund } else { Change::Charge };
        let mut counted = |requests_per_unit, unit: Unit, shared: &Shared<'_>, limit, stats_key| {
            let window = Window::at(unit, self.now);
            let start = plan.keys.len();
            write_counter_key(&mut plan.keys, &self.scope, &descriptor.entries, shared, window.start);
            let key = start..plan.keys.len();
            Slot::Counted(Counted { requests_per_unit, window, limit, stats_key, hits, change, key })
        };
        if let Some(limit) = descriptor.limit {
            let unit = Unit::from_number(limit.unit).ok_or(limit.unit)?;
            let stats_key = override_stats_key(self.scope.domain, &descriptor.entries);
            return Ok(counted(limit.requests_per_unit, unit, &Shared::new(), None, stats_key));
        }
        let Some(found) = root.find(self.scope.domain, &descriptor.entries, probe) else {
            return Ok(Slot::NoLimit);
        };
        Ok(match found.limit.rate {
            Rate::Unlimited { .. } => Slot::Unlimited(found.limit),
            Rate::PerUnit { requests_per_unit, unit } => {
                counted(requests_per_unit, unit, &found.shared, Some(found.limit), found.stats_key)
            }
        })
    }
}

#[cfg(test)]
impl Counted<'_> {
    pub(crate) fn for_test(window: Window, requests_per_unit: u32, hits: u64, change: Change) -> Self {
        Self { requests_per_unit, window, limit: None, stats_key: "test".into(), hits, change, key: 0..0 }
    }
}
