//! The tree of a domain's limits, and how a descriptor finds its limit in it.

mod example;
mod limit;
mod pattern;
mod stats_key;

use hashbrown::HashMap;
use smallvec::SmallVec;

pub use limit::Unit;
pub(crate) use limit::{Limit, Rate};
pub use stats_key::StatsKey;
pub(crate) use stats_key::override_stats_key;

use crate::request::Entry;
use pattern::Pattern;
use stats_key::stats_key;

/// The configured descriptors below one parent.
#[derive(Debug, Default)]
pub(crate) struct Level {
    nodes: Vec<Node>,
    /// By composite key: `key`, or `key_value`.
    by_key: HashMap<Box<str>, u32>,
    /// Composite keys that contain a `*`, in the order of the file.
    patterns: Vec<(Pattern, u32)>,
}

/// One configured descriptor.
#[derive(Debug, Default)]
pub(crate) struct Node {
    /// Where the key ends in the composite key.
    pub(crate) key_length: usize,
    pub(crate) limit: Option<Limit>,
    pub(crate) below: Level,
    /// Put the request's value into the stats key.
    pub(crate) value_to_metric: bool,
    /// All values that match the pattern share one counter.
    pub(crate) share_threshold: bool,
}

/// The limit that a descriptor matches.
#[derive(Debug)]
pub(crate) struct LimitMatch<'t> {
    pub(crate) limit: &'t Limit,
    pub(crate) stats_key: StatsKey,
    pub(crate) shared: SharedValues<'t>,
}

/// For each entry whose values share a counter: the text that replaces the value in the counter key. Empty when no entry
/// shares its counter.
pub(crate) type SharedValues<'t> = SmallVec<[Option<&'t str>; 4]>;

/// The node that one entry of a request matches, and how.
#[derive(Debug, Clone, Copy)]
struct NodeMatch<'t> {
    node: &'t Node,
    kind: MatchKind<'t>,
}

#[derive(Debug, Clone, Copy)]
enum MatchKind<'t> {
    /// The node has the entry's key and value.
    Exact,
    /// The node is a pattern. The text is the pattern without its key.
    Pattern(&'t str),
    /// The node has the entry's key and no value.
    Key,
}

/// One per entry.
type NodeMatches<'t> = SmallVec<[NodeMatch<'t>; 4]>;

impl Level {
    /// Whether a node has this composite key.
    pub(crate) fn contains(&self, composite: &str) -> bool {
        self.by_key.contains_key(composite)
    }

    /// Adds a node. No other node may have its composite key.
    pub(crate) fn insert(&mut self, composite: &str, node: Node) {
        let index = u32::try_from(self.nodes.len()).expect("a file is bounded to far fewer nodes");
        self.nodes.push(node);
        self.by_key.insert(composite.into(), index);
        if composite.contains('*') {
            self.patterns.push((Pattern::new(composite), index));
        }
    }

    /// Adds every limit of this level and below it to `into`.
    pub(crate) fn limits<'t>(&'t self, into: &mut Vec<&'t Limit>) {
        for node in &self.nodes {
            into.extend(&node.limit);
            node.below.limits(into);
        }
    }

    /// Gives every limit of this level and below it to `change`.
    pub(crate) fn change_limits(&mut self, change: &mut impl FnMut(&mut Limit)) {
        for node in &mut self.nodes {
            node.limit.iter_mut().for_each(&mut *change);
            node.below.change_limits(change);
        }
    }

    /// Finds the limit of a descriptor of `domain`. `probe` is a buffer to reuse.
    ///
    /// At every level an exact match wins over a pattern, and a pattern over a key without value. The search never goes back
    /// to a higher level. Only a limit at the depth of the last entry applies.
    pub(crate) fn find<'t>(&'t self, domain: &str, entries: &[Entry], probe: &mut String) -> Option<LimitMatch<'t>> {
        let mut nodes = NodeMatches::new();
        let mut level = self;
        for entry in entries {
            nodes.push(level.matching(entry, probe)?);
            level = &nodes.last()?.node.below;
        }
        let limit = nodes.last()?.node.limit.as_ref()?;
        let mut shared = SharedValues::new();
        if nodes.iter().any(|node| node.shared_value().is_some()) {
            shared.extend(nodes.iter().map(NodeMatch::shared_value));
        }
        Some(LimitMatch { limit, stats_key: stats_key(limit, domain, entries, &nodes), shared })
    }

    /// The node that an entry matches.
    fn matching<'t>(&'t self, entry: &Entry, probe: &mut String) -> Option<NodeMatch<'t>> {
        probe.clear();
        probe.push_str(&entry.key);
        probe.push('_');
        probe.push_str(&entry.value);
        if let Some(node) = self.get(probe) {
            return Some(NodeMatch { node, kind: MatchKind::Exact });
        }
        let pattern = self.patterns.iter().find(|(pattern, _)| pattern.matches(probe));
        if let Some((pattern, index)) = pattern {
            let kind = MatchKind::Pattern(pattern.value_part(&entry.key));
            return Some(NodeMatch { node: &self.nodes[*index as usize], kind });
        }
        self.get(&entry.key).map(|node| NodeMatch { node, kind: MatchKind::Key })
    }

    fn get(&self, composite: &str) -> Option<&Node> {
        self.by_key.get(composite).map(|index| &self.nodes[*index as usize])
    }
}

impl<'t> NodeMatch<'t> {
    /// The text that replaces the value in the counter key, if the values share a counter.
    fn shared_value(&self) -> Option<&'t str> {
        match self.kind {
            MatchKind::Pattern(text) if self.node.share_threshold => Some(text),
            _ => None,
        }
    }

    /// The text for the value in the stats key; may be empty.
    fn metric_value<'a>(&self, entry: &'a Entry) -> &'a str
    where
        't: 'a,
    {
        match self.kind {
            MatchKind::Pattern(text) if self.node.share_threshold || !self.node.value_to_metric => text,
            MatchKind::Pattern(_) | MatchKind::Exact => &entry.value,
            MatchKind::Key if self.node.value_to_metric => &entry.value,
            MatchKind::Key => "",
        }
    }

    /// Whether this entry can make the stats key differ from the path in the configuration.
    fn may_change_stats_key(&self, entry: &Entry) -> bool {
        match self.kind {
            MatchKind::Exact => entry.value.is_empty(),
            MatchKind::Pattern(_) => true,
            MatchKind::Key => self.node.value_to_metric,
        }
    }
}
