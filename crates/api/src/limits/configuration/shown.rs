//! JSON views of domains, descriptors and limits of the configuration.

use serde::Serialize;
use tidegate_ratelimit::{Domain, Entry, Limit, Node, Rate};
#[cfg(test)]
use utoipa::ToSchema;

use super::activity::{AnswerLimits, RatesShown, UsageShown};
use crate::limits::overrides::OverrideShown;
use crate::limits::{MAX_TEXT_BYTES, truncate, truncate_to};
use crate::state::config_status::{LimitUse, Loads};

/// Most bytes of all texts of a path.
const MAX_PATH_BYTES: usize = 2_000;
/// Most files of a domain, and most limits that one limit replaces.
const MAX_LISTED_NAMES: usize = 10;
/// Most levels of descriptors in one answer. JSON parsers bound the depth, too.
const MAX_DEPTH: usize = 16;

/// A domain of the configuration.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema), schema(as = ConfiguredDomain))]
pub(crate) struct DomainShown<'a> {
    name: &'a str,
    /// True when the name is too long to be shown as a whole. Left out when it is not.
    #[serde(skip_serializing_if = "is_false")]
    cut: bool,
    /// The paths of the files, or the resources, that it is written in, at most ten.
    #[cfg_attr(test, schema(max_items = 10))]
    files: Vec<&'a str>,
    /// How many descriptors are at its top.
    children: usize,
    /// How many limits it has.
    limits: usize,
    /// The descriptors at its top, with all below them. Left out when they are too many for this answer: ask for the domain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) descriptors: Option<Vec<DescriptorShown<'a>>>,
}

/// A descriptor of the configuration.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema), schema(as = ConfiguredDescriptor))]
pub(crate) struct DescriptorShown<'a> {
    key: &'a str,
    /// The value, in which a `*` stands for any text; empty when it is for all values without a descriptor of their own.
    value: &'a str,
    /// True when the key or the value is too long to be shown as a whole. Left out when they are not.
    #[serde(skip_serializing_if = "is_false")]
    cut: bool,
    /// The path of the file, or the resource, that it is written in.
    file: &'a str,
    /// Its line there. Left out when it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
    /// Its limit. Left out when it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) limit: Option<ConfiguredLimitShown<'a>>,
    /// Statistics have the value of the request in their name. Left out when they have not.
    #[serde(skip_serializing_if = "is_false")]
    value_to_metric: bool,
    /// All values that match share one counter. Left out when they do not.
    #[serde(skip_serializing_if = "is_false")]
    share_threshold: bool,
    /// How many descriptors are right below it.
    children: usize,
    /// How many limits are below it.
    limits_below: usize,
    /// The descriptors below it. Left out when there are none, or too many for this answer: ask for this descriptor.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schema(no_recursion))]
    pub(super) descriptors: Option<Vec<DescriptorShown<'a>>>,
}

/// A descriptor that was searched for, with the way to it.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema), schema(as = FoundDescriptor))]
pub(crate) struct FoundShown<'a> {
    domain: &'a str,
    /// Keys and values from the top of the domain to this one.
    #[cfg_attr(test, schema(value_type = Vec<Vec<String>>))]
    entries: Vec<(&'a str, &'a str)>,
    /// True when the domain or the way is too long to be shown as a whole. Left out when they are not.
    #[serde(skip_serializing_if = "is_false")]
    way_cut: bool,
    descriptor: DescriptorShown<'a>,
}

/// A limit of the configuration, and what was counted of it.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema), schema(as = ConfiguredLimit))]
pub(crate) struct ConfiguredLimitShown<'a> {
    /// Its path in the configuration, by which overrides and statistics name it.
    rule: &'a str,
    /// Its name; empty when it has none.
    name: &'a str,
    /// Hits allowed in each window; null when it is unlimited.
    #[cfg_attr(test, schema(required))]
    requests_per_unit: Option<u32>,
    /// The length of a window, such as `minute`; null when it is unlimited.
    #[cfg_attr(test, schema(required))]
    unit: Option<String>,
    /// It counts, and refuses nothing.
    shadow_mode: bool,
    /// It refuses only when all such limits of a request are exceeded.
    quota_mode: bool,
    /// Statistics have the keys and values of the request in their name.
    detailed_metric: bool,
    /// Whether a service that throttles its jobs keeps its requests waiting, too.
    pause_when_throttled: bool,
    /// Whether answers to requests carry metadata of it.
    has_metadata: bool,
    /// The names of limits that it replaces, at most ten.
    #[cfg_attr(test, schema(max_items = 10))]
    replaces: Vec<&'a str>,
    /// Hits of requests and jobs at this server. Left out when it is unlimited: then nothing is counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) r#use: Option<UseShown>,
    /// Rates of about the last minute at this server. Left out for the first second of a configuration, and for limits after the first 4,096.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) now: Option<RatesShown>,
    /// How much of it is used. Left out when no key is known: of a limit for many keys, none had hits in the last one to two minutes. Left out, too, when the 64 keys
    /// that an answer reads are of other limits, or when the store does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) usage: Option<UsageShown>,
    /// Overrides that pause, throttle or scale it or a key of it, at most five. Left out when there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(test, schema(max_items = 5))]
    pub(super) overrides: Vec<OverrideShown<'a>>,
    #[serde(skip)]
    pub(super) limit: &'a Limit,
}

/// Hits since the server started, or since it has the limit.
#[derive(Debug, Clone, Copy, Serialize)]
#[cfg_attr(test, derive(ToSchema), schema(as = ConfiguredLimitUse))]
pub(crate) struct UseShown {
    /// All of them. Of a call whose store failed, it is not known how they ended.
    hits: u64,
    /// Those within the limit.
    within_limit: u64,
    /// Those of them near its end.
    near_limit: u64,
    /// Those over the limit.
    over_limit: u64,
    /// Those of them that were let through, because the limit is in shadow mode.
    shadow_mode: u64,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

impl<'a> DomainShown<'a> {
    /// Makes the view of a domain without its descriptors.
    pub(crate) fn new(name: &'a str, domain: &'a Domain) -> Self {
        Self {
            name: truncate(name),
            cut: name.len() > MAX_TEXT_BYTES,
            files: domain
                .files()
                .take(MAX_LISTED_NAMES)
                .map(truncate)
                .collect(),
            children: domain.level.nodes().len(),
            limits: domain.level.limits(),
            descriptors: None,
        }
    }

    /// Adds all descriptors at its top, with those below them.
    pub(super) fn with_descriptors(mut self, domain: &'a Domain) -> Self {
        let node = |(place, node)| {
            DescriptorShown::new(node, domain.file_of(place)).with_descriptors(node, 1)
        };
        self.descriptors = Some(domain.level.nodes().iter().enumerate().map(node).collect());
        self
    }

    /// Replaces the names of its files by the paths.
    pub(super) fn show_paths(&mut self, loads: &'a Loads) {
        for file in &mut self.files {
            *file = truncate(loads.path_of(file));
        }
    }
}

impl<'a> DescriptorShown<'a> {
    /// Makes the view of a descriptor without those below it.
    pub(crate) fn new(node: &'a Node, file: &'a str) -> Self {
        let key = node.key();
        let value = node.value();
        Self {
            key: truncate(key),
            value: truncate(value),
            cut: key.len().max(value.len()) > MAX_TEXT_BYTES,
            file: truncate(file),
            line: Some(node.line).filter(|line| *line > 0),
            limit: node.limit.as_ref().map(ConfiguredLimitShown::from_limit),
            value_to_metric: node.value_to_metric,
            share_threshold: node.share_threshold,
            children: node.below.nodes().len(),
            limits_below: node.below.limits(),
            descriptors: None,
        }
    }

    /// Adds all descriptors below it, down to the maximum depth.
    pub(super) fn with_descriptors(mut self, node: &'a Node, depth: usize) -> Self {
        if !node.below.nodes().is_empty() && depth < MAX_DEPTH {
            let below =
                |node: &'a Node| Self::new(node, self.file).with_descriptors(node, depth + 1);
            self.descriptors = Some(node.below.nodes().iter().map(below).collect());
        }
        self
    }

    /// Replaces the name of its file by the path.
    pub(super) fn show_path(&mut self, loads: &'a Loads) {
        self.file = truncate(loads.path_of(self.file));
    }

    /// Returns the only entry that it is for. `None` if there are more.
    pub(super) fn only_entry(&self) -> Option<Entry> {
        exact_entry(self.key, self.value).filter(|_| !self.cut)
    }
}

/// Returns the only entry that a descriptor with this key and value is for. `None` if it is for
/// several values.
pub(super) fn exact_entry(key: &str, value: &str) -> Option<Entry> {
    let is_one = !value.is_empty() && !value.contains('*');
    is_one.then(|| Entry {
        key: key.to_owned(),
        value: value.to_owned(),
    })
}

impl<'a> FoundShown<'a> {
    /// Makes the view of a search result. The path ends with the descriptor itself.
    pub(crate) fn new(
        domain: &'a str,
        path: impl Iterator<Item = &'a Node>,
        descriptor: DescriptorShown<'a>,
    ) -> Self {
        let mut remaining = MAX_PATH_BYTES;
        let mut way_cut = domain.len() > MAX_TEXT_BYTES;
        let mut truncated = |text: &'a str| {
            let truncated = truncate_to(text, remaining);
            remaining -= truncated.len();
            way_cut |= truncated.len() < text.len();
            truncated
        };
        let entries = path
            .map(|node| (truncated(node.key()), truncated(node.value())))
            .collect();
        Self {
            domain: truncate(domain),
            entries,
            way_cut,
            descriptor,
        }
    }

    /// Adds the limits of the descriptor.
    pub(super) fn add_limits<'s>(&'s mut self, limits: &mut AnswerLimits<'s, 'a>) {
        let entry = |(key, value): &(&str, &str)| exact_entry(key, value);
        let parents = &self.entries[..self.entries.len().saturating_sub(1)];
        let parents: Option<Vec<Entry>> = parents.iter().map(entry).collect();
        let parents = parents.filter(|_| !self.way_cut);
        limits.add(&mut self.descriptor, self.domain, parents.as_deref());
    }
}

impl<'a> ConfiguredLimitShown<'a> {
    /// Returns whether its hits are counted.
    pub(super) fn is_counted(&self) -> bool {
        self.unit.is_some()
    }

    fn from_limit(limit: &'a Limit) -> Self {
        let (requests_per_unit, unit) = match limit.rate {
            Rate::Unlimited { .. } => (None, None),
            Rate::PerUnit {
                requests_per_unit,
                unit,
            } => (
                Some(requests_per_unit),
                Some(unit.name().to_ascii_lowercase()),
            ),
        };
        Self {
            rule: truncate(&limit.stats_key),
            name: truncate(&limit.name),
            requests_per_unit,
            unit,
            shadow_mode: limit.shadow_mode,
            quota_mode: limit.quota_mode,
            detailed_metric: limit.detailed_metric,
            pause_when_throttled: limit.pause_when_throttled,
            has_metadata: !limit.metadata.is_empty(),
            replaces: limit
                .replaces
                .iter()
                .take(MAX_LISTED_NAMES)
                .map(|name| truncate(name))
                .collect(),
            r#use: None,
            now: None,
            usage: None,
            overrides: Vec::new(),
            limit,
        }
    }
}

impl From<LimitUse> for UseShown {
    fn from(limit_use: LimitUse) -> Self {
        Self {
            hits: limit_use.hits,
            within_limit: limit_use.within_limit,
            near_limit: limit_use.near_limit,
            over_limit: limit_use.over_limit,
            shadow_mode: limit_use.shadow_mode,
        }
    }
}
