//! The tree of a domain's limits, and how a descriptor finds its limit in it.

mod limit;
mod pattern;
mod stats_key;

pub use limit::{Limit, Rate};
pub(crate) use pattern::StepBudget;
pub use stats_key::StatsKey;
pub(crate) use stats_key::override_stats_key;

use std::sync::Arc;

use hashbrown::HashMap;
use smallvec::SmallVec;

use crate::model::Entry;
use pattern::Pattern;
use stats_key::stats_key;

/// The value of an example entry where the configuration allows any value.
const EXAMPLE_VALUE: &str = "me";

/// The configured descriptors below one parent, in the order of the files.
#[derive(Debug, Default)]
pub struct Level {
    nodes: Vec<Node>,
    /// Indices of the nodes by composite key: `key`, or `key_value`. Nodes share these texts. The
    /// index is in the map, so that a look-up reads text and node concurrently instead of in
    /// sequence.
    by_key: HashMap<Arc<str>, u32>,
    /// Composite keys that contain a `*`, in the order of the file.
    patterns: Vec<(Pattern, u32)>,
    /// Number of descriptors of this level and below it.
    descriptors: u32,
    limits: u32,
}

/// A configured descriptor, with those below it.
#[derive(Debug, Default)]
pub struct Node {
    /// `key`, or `key_value`.
    pub(crate) composite: Arc<str>,
    /// Length of the key in `composite`.
    pub(crate) key_length: usize,
    /// The line in its file, from 1. 0 if it has none.
    pub line: u32,
    /// Its limit, if it has one.
    pub limit: Option<Limit>,
    /// The descriptors below it.
    pub below: Level,
    /// Whether the stats key has the request's value.
    pub value_to_metric: bool,
    /// Whether all values that match the pattern share one counter.
    pub share_threshold: bool,
}

/// The state that the look-ups of one call share.
#[derive(Debug)]
pub(crate) struct LookupState {
    /// The composite key of the look-up.
    text: String,
    pub(crate) steps: StepBudget,
}

impl LookupState {
    pub(crate) fn new(steps: StepBudget) -> Self {
        // 64 bytes hold a typical composite key.
        Self {
            text: String::with_capacity(64),
            steps,
        }
    }
}

/// The limit that a descriptor matches.
#[derive(Debug)]
pub(crate) struct LimitMatch<'t> {
    pub(crate) limit: &'t Limit,
    pub(crate) stats_key: StatsKey,
    pub(crate) shared: SharedValues<'t>,
}

/// The text that replaces the value of each entry in the counter key if its values share a counter.
/// Empty if no entry shares its counter.
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

/// One match per entry.
type NodeMatches<'t> = SmallVec<[NodeMatch<'t>; 4]>;

impl Level {
    /// Returns the number of descriptors of this level and below it.
    #[must_use]
    pub fn descriptors(&self) -> usize {
        self.descriptors as usize
    }

    /// Returns the number of limits of this level and below it.
    #[must_use]
    pub fn limits(&self) -> usize {
        self.limits as usize
    }

    /// Returns the descriptors of this level.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Returns the index of the descriptor with this key and value. The value is empty if the
    /// descriptor has none.
    #[must_use]
    pub fn index_of(&self, key: &str, value: &str) -> Option<usize> {
        let index = if value.is_empty() {
            self.find_index(key)
        } else {
            self.find_index(&format!("{key}_{value}"))
        };
        // A key with an underscore may look like another key with a value.
        index.filter(|index| self.nodes[*index].key() == key)
    }

    /// Returns the index of a node of this level.
    pub(crate) fn index_of_node(&self, node: &Node) -> Option<usize> {
        self.find_index(&node.composite)
    }

    /// Returns the nodes that the entries match, as in [`Self::find`]. They are fewer than the
    /// entries if one matches none.
    pub(crate) fn follow<'t>(
        &'t self,
        entries: &[Entry],
        probe: &mut LookupState,
    ) -> Vec<&'t Node> {
        let mut nodes = Vec::with_capacity(entries.len());
        let mut level = self;
        for entry in entries {
            let Some(found) = level.matching(entry, probe) else {
                break;
            };
            nodes.push(found.node);
            level = &found.node.below;
        }
        nodes
    }

    /// Returns whether a node has this composite key.
    pub(crate) fn contains(&self, composite: &str) -> bool {
        self.get(composite).is_some()
    }

    /// Adds a node. No other node may have its composite key.
    pub(crate) fn insert(&mut self, node: Node) {
        let index = u32::try_from(self.nodes.len()).expect("a file is bounded to far fewer nodes");
        self.descriptors += 1 + node.below.descriptors;
        self.limits += u32::from(node.limit.is_some()) + node.below.limits;
        if node.composite.contains('*') {
            self.patterns.push((Pattern::new(&node.composite), index));
        }
        self.by_key.insert(node.composite.clone(), index);
        self.nodes.push(node);
    }

    /// Adds every limit of this level and below it to `into`.
    pub(crate) fn collect_limits<'t>(&'t self, into: &mut Vec<&'t Limit>) {
        for node in &self.nodes {
            into.extend(&node.limit);
            node.below.collect_limits(into);
        }
    }

    /// Calls `change` for every limit of this level and below it.
    pub(crate) fn change_limits(&mut self, change: &mut impl FnMut(&mut Limit)) {
        for node in &mut self.nodes {
            node.limit.iter_mut().for_each(&mut *change);
            node.below.change_limits(change);
        }
    }

    /// Returns the entries of a descriptor that the first limit of the file applies to. `None` if
    /// every request is unlimited.
    pub(crate) fn example(&self) -> Option<Vec<Entry>> {
        self.nodes.iter().find_map(|node| {
            let key = node.key();
            let value = node.value();
            let value = if value.is_empty() {
                EXAMPLE_VALUE.to_owned()
            } else {
                value.replace('*', EXAMPLE_VALUE)
            };
            let mut entries = vec![Entry {
                key: key.to_owned(),
                value,
            }];
            let is_limited = |rate: &Rate| matches!(rate, Rate::PerUnit { .. });
            if !node
                .limit
                .as_ref()
                .is_some_and(|limit| is_limited(&limit.rate))
            {
                entries.extend(node.below.example()?);
            }
            Some(entries)
        })
    }

    /// Finds the limit of a descriptor of `domain`. `probe` is reused by the next descriptor.
    ///
    /// At every level an exact match precedes a pattern, and a pattern precedes a key without
    /// value. The search never returns to a higher level. Only a limit at the depth of the last
    /// entry applies. `None` if the steps for matching are used up.
    pub(crate) fn find<'t>(
        &'t self,
        domain: &str,
        entries: &[Entry],
        probe: &mut LookupState,
    ) -> Option<LimitMatch<'t>> {
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
        Some(LimitMatch {
            limit,
            stats_key: stats_key(limit, domain, entries, &nodes),
            shared,
        })
    }

    /// Returns the node that an entry matches.
    fn matching<'t>(&'t self, entry: &Entry, probe: &mut LookupState) -> Option<NodeMatch<'t>> {
        let LookupState { text, steps } = probe;
        text.clear();
        text.push_str(&entry.key);
        text.push('_');
        text.push_str(&entry.value);
        if let Some(node) = self.get(text) {
            return Some(NodeMatch {
                node,
                kind: MatchKind::Exact,
            });
        }
        let pattern = self
            .patterns
            .iter()
            .find(|(pattern, _)| pattern.matches(text, steps));
        if let Some((pattern, index)) = pattern {
            let kind = MatchKind::Pattern(pattern.value_part(&entry.key));
            return Some(NodeMatch {
                node: &self.nodes[*index as usize],
                kind,
            });
        }
        if steps.is_used_up() {
            return None;
        }
        self.get(&entry.key).map(|node| NodeMatch {
            node,
            kind: MatchKind::Key,
        })
    }

    fn get(&self, composite: &str) -> Option<&Node> {
        self.find_index(composite).map(|index| &self.nodes[index])
    }

    fn find_index(&self, composite: &str) -> Option<usize> {
        self.by_key.get(composite).map(|index| *index as usize)
    }
}

impl Node {
    /// Returns the key.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.composite[..self.key_length]
    }

    /// Returns the value, in which a `*` matches any text. Empty if the descriptor has none and
    /// matches every value.
    #[must_use]
    pub fn value(&self) -> &str {
        self.composite[self.key_length..]
            .strip_prefix('_')
            .unwrap_or_default()
    }
}

impl<'t> NodeMatch<'t> {
    /// Returns the text that replaces the value in the counter key, if the values share a counter.
    fn shared_value(&self) -> Option<&'t str> {
        match self.kind {
            MatchKind::Pattern(text) if self.node.share_threshold => Some(text),
            _ => None,
        }
    }

    /// Returns the text for the value in the stats key. It may be empty.
    fn metric_value<'a>(&self, entry: &'a Entry) -> &'a str
    where
        't: 'a,
    {
        match self.kind {
            MatchKind::Pattern(text) if self.node.share_threshold || !self.node.value_to_metric => {
                text
            }
            MatchKind::Pattern(_) | MatchKind::Exact => &entry.value,
            MatchKind::Key if self.node.value_to_metric => &entry.value,
            MatchKind::Key => "",
        }
    }

    /// Returns whether this entry can make the stats key differ from the path in the configuration.
    fn may_change_stats_key(&self, entry: &Entry) -> bool {
        match self.kind {
            MatchKind::Exact => entry.value.is_empty(),
            MatchKind::Pattern(_) => true,
            MatchKind::Key => self.node.value_to_metric,
        }
    }
}
