//! The limits of one domain, and how a descriptor finds its own.

mod limit;
mod pattern;
mod stats_key;

use std::sync::Arc;

use hashbrown::HashMap;
use smallvec::SmallVec;

pub use limit::Unit;
pub(crate) use limit::{Limit, Rate};
pub(crate) use stats_key::override_stats_key;

use crate::request::Entry;
use pattern::Pattern;
use stats_key::stats_key;

/// The descriptors at one depth, below one parent.
#[derive(Debug, Default)]
pub(crate) struct Level {
    nodes: Vec<Node>,
    /// By composite key: `key`, or `key_value`.
    by_key: HashMap<Box<str>, u32>,
    /// Composite keys with a `*`, in the order of the file.
    patterns: Vec<(Pattern, u32)>,
}

/// One configured descriptor.
#[derive(Debug, Default)]
pub(crate) struct Node {
    pub(crate) limit: Option<Limit>,
    pub(crate) below: Level,
    /// The request's value appears in the stats key.
    pub(crate) value_to_metric: bool,
    /// All values that match the pattern count together.
    pub(crate) share_threshold: bool,
}

/// The limit of a descriptor.
#[derive(Debug)]
pub(crate) struct Match<'t> {
    pub(crate) limit: &'t Limit,
    pub(crate) stats_key: Arc<str>,
    pub(crate) shared: Shared<'t>,
}

/// Per entry, the text that stands for its value in the counter key, where values share a counter. Empty when none does.
pub(crate) type Shared<'t> = SmallVec<[Option<&'t str>; 4]>;

/// How one entry of a request found its node.
#[derive(Debug, Clone, Copy)]
struct Step<'t> {
    node: &'t Node,
    found: Found<'t>,
}

#[derive(Debug, Clone, Copy)]
enum Found<'t> {
    /// Key and value are in the configuration.
    Exact,
    /// A pattern matches; the text is the pattern's part for the value.
    Pattern(&'t str),
    /// The key is in the configuration, without value.
    Key,
}

type Steps<'t> = SmallVec<[Step<'t>; 4]>;

impl Level {
    /// Whether there is a node with this composite key.
    pub(crate) fn contains(&self, composite: &str) -> bool {
        self.by_key.contains_key(composite)
    }

    /// Adds a node under a composite key that is not there yet.
    pub(crate) fn insert(&mut self, composite: &str, node: Node) {
        let index = u32::try_from(self.nodes.len()).expect("a file is bounded to far fewer nodes");
        self.nodes.push(node);
        self.by_key.insert(composite.into(), index);
        if composite.contains('*') {
            self.patterns.push((Pattern::new(composite), index));
        }
    }

    /// Every limit from here down.
    pub(crate) fn limits<'t>(&'t self, into: &mut Vec<&'t Limit>) {
        for node in &self.nodes {
            into.extend(&node.limit);
            node.below.limits(into);
        }
    }

    /// The limit of a descriptor of `domain`. `probe` is scratch space.
    ///
    /// At every level an exact match wins over a pattern, and a pattern over a key without value; there is no way back up.
    /// Only a limit at the depth of the last entry counts.
    pub(crate) fn find<'t>(&'t self, domain: &str, entries: &[Entry], probe: &mut String) -> Option<Match<'t>> {
        let mut steps = Steps::new();
        let mut level = self;
        for entry in entries {
            steps.push(level.step(entry, probe)?);
            level = &steps.last()?.node.below;
        }
        let limit = steps.last()?.node.limit.as_ref()?;
        let mut shared = Shared::new();
        if steps.iter().any(|step| step.shared().is_some()) {
            shared.extend(steps.iter().map(Step::shared));
        }
        Some(Match { limit, stats_key: stats_key(limit, domain, entries, &steps), shared })
    }

    fn step<'t>(&'t self, entry: &Entry, probe: &mut String) -> Option<Step<'t>> {
        probe.clear();
        probe.push_str(&entry.key);
        probe.push('_');
        probe.push_str(&entry.value);
        if let Some(node) = self.get(probe) {
            return Some(Step { node, found: Found::Exact });
        }
        let pattern = self.patterns.iter().find(|(pattern, _)| pattern.matches(probe));
        if let Some((pattern, index)) = pattern {
            let found = Found::Pattern(pattern.value_part(&entry.key));
            return Some(Step { node: &self.nodes[*index as usize], found });
        }
        self.get(&entry.key).map(|node| Step { node, found: Found::Key })
    }

    fn get(&self, composite: &str) -> Option<&Node> {
        self.by_key.get(composite).map(|index| &self.nodes[*index as usize])
    }
}

impl<'t> Step<'t> {
    /// The text that stands for the value in the counter key, if the values share a counter.
    fn shared(&self) -> Option<&'t str> {
        match self.found {
            Found::Pattern(text) if self.node.share_threshold => Some(text),
            _ => None,
        }
    }

    /// What stands for the value in the stats key; empty for nothing.
    fn metric_value<'a>(&self, entry: &'a Entry) -> &'a str
    where
        't: 'a,
    {
        match self.found {
            Found::Pattern(text) if self.node.share_threshold || !self.node.value_to_metric => text,
            Found::Pattern(_) | Found::Exact => &entry.value,
            Found::Key if self.node.value_to_metric => &entry.value,
            Found::Key => "",
        }
    }

    /// Whether the stats key may differ from the path in the configuration because of this entry.
    fn may_rename(&self, entry: &Entry) -> bool {
        match self.found {
            Found::Exact => entry.value.is_empty(),
            Found::Pattern(_) => true,
            Found::Key => self.node.value_to_metric,
        }
    }
}
