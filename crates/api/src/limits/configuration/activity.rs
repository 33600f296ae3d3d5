//! What happens at the limits of an answer now: their rates, how much of them is used, and their
//! overrides.

use std::num::NonZeroU32;

use hashbrown::HashMap;
use serde::Serialize;
use tidegate_ratelimit::{
    Configuration, Entry, Limit, LimitLookup, LimitOverride, OverrideTarget, Overrides, Sketch,
    Units, Usage,
};
#[cfg(test)]
use utoipa::ToSchema;

use super::shown::{ConfiguredLimitShown, DescriptorShown, UseShown};
use crate::http::time::Rfc3339;
use crate::limits::overrides::OverrideShown;
use crate::limits::pairs;
use crate::state::config_status::Loads;
use crate::state::history::limit_rates::LimitRate;
use crate::state::rate_limits::deadline;
use crate::state::server_hooks::ServerHooks;

/// Most counters that an answer reads from the store.
const MAX_READ_KEYS: usize = 64;
/// Most overrides of one limit in an answer, each of at most 1 KiB.
const MAX_OVERRIDES: usize = 5;

/// Rates of a limit in about the last minute, or since it is known.
#[derive(Debug, Clone, Copy, Serialize)]
#[cfg_attr(test, derive(ToSchema), schema(as = ConfiguredLimitRates))]
pub(crate) struct RatesShown {
    /// The time that the rates are of.
    window_ms: u64,
    hits_per_second: f64,
    /// Hits of them that were refused. Those over a limit in shadow mode were not.
    refused_per_second: f64,
    /// The share of the hits that was refused, from 0 to 1.
    refused_share: f64,
}

/// How much of a limit is used.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(ToSchema), schema(as = ConfiguredLimitUsage))]
pub(crate) struct UsageShown {
    /// Hits that are counted for the busiest of the keys that were read. With hits that were refused, they may be more than the limit allows.
    used: u64,
    /// Hits that the limit allows in each window, with its overrides.
    of: u32,
    /// When the window ends.
    resets_at: Rfc3339,
    /// That key: pairs of a key and a value.
    #[cfg_attr(test, schema(value_type = Vec<Vec<String>>))]
    entries: Vec<(String, String)>,
    /// How many keys of the limit had hits in the last one to two minutes at this server.
    values: usize,
    /// Whether there were too many decisions or keys to count all: then `values` may be too low, and another key may be busier.
    is_estimate: bool,
    /// How many keys were read, those with the most hits. An answer reads 64 in all.
    read: usize,
    /// How many of these have used all of it.
    full: usize,
    /// How many are near its end, and not full.
    near: usize,
}

/// The state of the server that limits are compared with.
pub(super) struct Activity<'c> {
    pub(super) host: &'c ServerHooks,
    pub(super) loads: &'c Loads,
    pub(super) configuration: &'c Configuration,
    pub(super) overrides: &'c Overrides,
}

/// A limit of the answer.
struct LimitInAnswer<'s, 'c> {
    domain: &'s str,
    /// Its only key, if it has no more.
    only_key: Option<Vec<Entry>>,
    shown: &'s mut ConfiguredLimitShown<'c>,
}

/// Limits of the answer, in its order.
pub(super) struct AnswerLimits<'s, 'c> {
    loads: &'c Loads,
    limits: Vec<LimitInAnswer<'s, 'c>>,
}

/// A counter to read.
struct KeyToRead<'k> {
    /// Index of the limit in the answer.
    limit: usize,
    domain: &'k str,
    entries: &'k [Entry],
    hits: u64,
}

impl<'s, 'c> AnswerLimits<'s, 'c> {
    pub(super) fn new(loads: &'c Loads) -> Self {
        Self {
            loads,
            limits: Vec::new(),
        }
    }

    /// Adds the limits of a descriptor and of those below it, and replaces the names of files by
    /// paths. `parents` leads to it, if it has no more than this way.
    pub(super) fn add(
        &mut self,
        descriptor: &'s mut DescriptorShown<'c>,
        domain: &'s str,
        parents: Option<&[Entry]>,
    ) {
        descriptor.show_path(self.loads);
        let key = parents.and_then(|parents| {
            let entry = descriptor.only_entry()?;
            Some([parents, &[entry]].concat())
        });
        if let Some(shown) = &mut descriptor.limit {
            self.limits.push(LimitInAnswer {
                domain,
                only_key: key.clone(),
                shown,
            });
        }
        for below in descriptor.descriptors.iter_mut().flatten() {
            self.add(below, domain, key.as_deref());
        }
    }
}

impl<'c> Activity<'c> {
    /// Adds counts, rates, usage and overrides to limits. What the store does not tell in time is
    /// left out.
    pub(super) async fn add_to(&self, limits: AnswerLimits<'_, 'c>) {
        let mut limits = limits.limits;
        let mut lookup = self.configuration.lookup();
        self.add_overrides(&mut limits, &mut lookup);
        limits.retain(|limit| limit.shown.is_counted());
        self.add_counts(&mut limits);
        self.add_usage(&mut limits, &mut lookup).await;
    }

    fn add_overrides(&self, limits: &mut [LimitInAnswer<'_, 'c>], lookup: &mut LimitLookup<'c>) {
        let now = self.host.limits.now();
        let mut by_rule: HashMap<&str, Vec<&'c LimitOverride>> = HashMap::new();
        for stored in self.overrides.iter().filter(|each| !each.has_ended(now)) {
            let rule = match &stored.target {
                OverrideTarget::Rule { stats_key } => Some(&**stats_key),
                OverrideTarget::Key { domain, entries } => {
                    let found = lookup.find(domain, entries);
                    found.map(|found| &*found.limit.stats_key)
                }
            };
            if let Some(rule) = rule {
                by_rule.entry(rule).or_default().push(stored);
            }
        }
        for limit in limits {
            let stored = by_rule.get(&*limit.shown.limit.stats_key);
            limit.shown.overrides = stored
                .into_iter()
                .flatten()
                .copied()
                .take(MAX_OVERRIDES)
                .map(OverrideShown::from_override)
                .collect();
        }
    }

    fn add_counts(&self, limits: &mut [LimitInAnswer<'_, 'c>]) {
        let slots: Vec<u32> = limits.iter().map(|limit| limit.shown.limit.slot).collect();
        let uses = (self.host.limit_uses)(&slots);
        let history = &self.host.history;
        let rates = history.limit_rates(self.configuration, &slots, &uses);
        for ((limit, limit_use), rate) in limits.iter_mut().zip(uses).zip(rates) {
            limit.shown.r#use = Some(UseShown::from(limit_use));
            limit.shown.now = rate.map(RatesShown::from);
        }
    }

    async fn add_usage(&self, limits: &mut [LimitInAnswer<'_, 'c>], lookup: &mut LimitLookup<'c>) {
        let rate_limits = &self.host.limits;
        let now = rate_limits.now();
        let sketch = rate_limits.limiter.sketch(now);
        let seen = keys_by_limit(&sketch, lookup);
        let mut usages: Vec<Option<UsageShown>> = limits.iter().map(|_| None).collect();
        let keys = keys_to_read(limits, &seen);
        let units: Vec<Units<'_>> = keys
            .iter()
            .map(|key| Units {
                domain: key.domain,
                entries: key.entries,
                hits: NonZeroU32::MIN,
            })
            .collect();
        let read = rate_limits.limiter.usage(&units, now, deadline()).await;
        for (key, usage) in keys.iter().zip(read.unwrap_or_default()) {
            if let Some(usage) = usage {
                let shown = usages[key.limit].get_or_insert_with(|| {
                    let limit = address(limits[key.limit].shown.limit);
                    UsageShown {
                        values: seen.get(&limit).map_or(0, Vec::len),
                        is_estimate: !sketch.is_complete,
                        ..UsageShown::new(&usage)
                    }
                });
                shown.add(key, &usage);
            }
        }
        for (limit, usage) in limits.iter_mut().zip(usages) {
            limit.shown.usage = usage;
        }
    }
}

/// Keys of the sketch with their hits, by the [`address`] of the limit that they have.
type KeysByLimit<'k> = HashMap<usize, Vec<SeenKey<'k>>>;

/// A key of the sketch.
struct SeenKey<'k> {
    domain: &'k str,
    entries: &'k [Entry],
    hits: u64,
}

/// Returns what distinguishes limits: several may have one slot.
fn address(limit: &Limit) -> usize {
    std::ptr::from_ref(limit).addr()
}

/// Returns the keys of the sketch by limit, those with the most hits first. A key that was cut is
/// another one.
fn keys_by_limit<'k>(sketch: &'k Sketch, lookup: &mut LimitLookup<'_>) -> KeysByLimit<'k> {
    let mut seen = KeysByLimit::new();
    for key in sketch.top.iter().filter(|key| !key.is_cut) {
        if let Some(found) = lookup.find(&key.domain, &key.entries) {
            seen.entry(address(found.limit)).or_default().push(SeenKey {
                domain: &key.domain,
                entries: &key.entries,
                hits: key.hits,
            });
        }
    }
    seen
}

/// Chooses the keys to read: one of each limit, and then the others. Those with the most hits come
/// first.
fn keys_to_read<'k>(
    limits: &'k [LimitInAnswer<'_, '_>],
    seen: &KeysByLimit<'k>,
) -> Vec<KeyToRead<'k>> {
    let mut first = Vec::new();
    let mut others = Vec::new();
    for (index, limit) in limits.iter().enumerate() {
        let of_limit = seen.get(&address(limit.shown.limit));
        let mut keys = of_limit.into_iter().flatten().map(|key| KeyToRead {
            limit: index,
            domain: key.domain,
            entries: key.entries,
            hits: key.hits,
        });
        let only_key = limit.only_key.as_deref().map(|entries| KeyToRead {
            limit: index,
            domain: limit.domain,
            entries,
            hits: 0,
        });
        first.extend(keys.next().or(only_key));
        others.extend(keys);
    }
    first.sort_by_key(|key| std::cmp::Reverse(key.hits));
    others.sort_by_key(|key| std::cmp::Reverse(key.hits));
    first.extend(others);
    first.truncate(MAX_READ_KEYS);
    first
}

impl UsageShown {
    fn new(usage: &Usage) -> Self {
        Self {
            used: 0,
            of: usage.requests_per_unit,
            resets_at: usage.ends_at.into(),
            entries: Vec::new(),
            values: 0,
            is_estimate: false,
            read: 0,
            full: 0,
            near: 0,
        }
    }

    /// Adds a key that was read.
    fn add(&mut self, key: &KeyToRead<'_>, usage: &Usage) {
        self.read += 1;
        if usage.used >= u64::from(usage.requests_per_unit) {
            self.full += 1;
        } else if usage.used > usage.near_limit {
            self.near += 1;
        }
        if self.read == 1 || usage.used > self.used {
            let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
            self.used = usage.used;
            self.of = usage.requests_per_unit;
            self.resets_at = usage.ends_at.into();
            self.entries = pairs(key.entries).into_iter().map(owned).collect();
        }
    }
}

impl From<LimitRate> for RatesShown {
    fn from(rate: LimitRate) -> Self {
        let rounded = |number: f64| (number * 1_000.0).round() / 1_000.0;
        let per_second = |hits: u64| rounded(hits as f64 / rate.window.as_secs_f64());
        Self {
            window_ms: u64::try_from(rate.window.as_millis()).unwrap_or(u64::MAX),
            hits_per_second: per_second(rate.hits),
            refused_per_second: per_second(rate.refused),
            refused_share: rounded(rate.refused as f64 / rate.hits.max(1) as f64),
        }
    }
}
