//! The limits of one domain, and how a descriptor finds its own.

use std::sync::Arc;

use hashbrown::HashMap;
use smallvec::SmallVec;

use crate::Entry;
use crate::limit::Limit;

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

/// The name under which hits are counted: the path in the configuration, unless a node on it asks for the request's values.
fn stats_key(limit: &Limit, domain: &str, entries: &[Entry], steps: &Steps<'_>) -> Arc<str> {
    let pairs = || entries.iter().zip(steps);
    if limit.detailed_metric {
        let any_shared = steps.iter().any(|step| step.shared().is_some());
        let mut name = Name::new(domain);
        for (entry, step) in pairs() {
            match step.shared() {
                None if !any_shared => name.entry_with_value(&entry.key, &entry.value),
                shared => name.entry(&entry.key, shared.unwrap_or(&entry.value)),
            }
        }
        return name.0.into();
    }
    if pairs().any(|(entry, step)| step.may_rename(entry)) {
        let mut name = Name::new(domain);
        for (entry, step) in pairs() {
            name.entry(&entry.key, step.metric_value(entry));
        }
        if *name.0 != *limit.stats_key {
            return name.0.into();
        }
    }
    Arc::clone(&limit.stats_key)
}

/// A stats key in the making.
struct Name(String);

impl Name {
    fn new(domain: &str) -> Self {
        Self(domain.to_owned())
    }

    fn entry(&mut self, key: &str, value: &str) {
        if value.is_empty() {
            self.0.push('.');
            self.0.push_str(key);
        } else {
            self.entry_with_value(key, value);
        }
    }

    fn entry_with_value(&mut self, key: &str, value: &str) {
        for part in [".", key, "_", value] {
            self.0.push_str(part);
        }
    }
}

/// The stats key of a limit that the request brings along.
pub(crate) fn override_stats_key(domain: &str, entries: &[Entry]) -> Arc<str> {
    if entries.is_empty() {
        return format!("{domain}.").into();
    }
    let mut name = Name::new(domain);
    for entry in entries {
        name.entry(&entry.key, &entry.value);
    }
    name.0.into()
}

/// A composite key in which every `*` stands for any text, also none.
#[derive(Debug)]
struct Pattern {
    text: Box<str>,
    first: Box<str>,
    middle: Box<[Box<str>]>,
    last: Box<str>,
}

impl Pattern {
    fn new(text: &str) -> Self {
        let mut pieces: Vec<Box<str>> = text.split('*').map(Into::into).collect();
        let last = pieces.pop().unwrap_or_default();
        let middle = pieces.split_off(1.min(pieces.len())).into();
        Self { text: text.into(), first: pieces.pop().unwrap_or_default(), middle, last }
    }

    fn matches(&self, probe: &str) -> bool {
        let Some(rest) = probe.strip_prefix(&*self.first) else { return false };
        let Some(mut rest) = rest.strip_suffix(&*self.last) else { return false };
        for piece in &self.middle {
            match rest.find(&**piece) {
                Some(at) => rest = &rest[at + piece.len()..],
                None => return false,
            }
        }
        true
    }

    /// The pattern without the key in front; the whole pattern when it does not start with the key.
    fn value_part(&self, key: &str) -> &str {
        self.text.strip_prefix(key).and_then(|rest| rest.strip_prefix('_')).unwrap_or(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        let table: [(&str, &[&str], &[&str]); 8] = [
            ("foo*", &["foo1", "foo2", "foo"], &["bar", "fo"]),
            ("bar*b", &["barab", "bar123b", "barb"], &["bara", "xbarb", "bar"]),
            ("foo*bar*baz", &["foo123bar456baz", "foobarbaz"], &["foo123baz", "bar456baz", "foobaz"]),
            ("/api*v1", &["/api/v1", "/api-beta-v1", "/apiXYZv1"], &["/api/v2", "/ap/v1"]),
            ("svc*ep*rpc", &["svcAepBrpc", "svcXXXepYYYrpc", "svceprpc"], &["svcABCrpc"]),
            ("*", &["", "anything"], &[]),
            ("a*a", &["aa", "aba"], &["a"]),
            ("*é*", &["é", "né"], &["e"]),
        ];
        for (pattern, matching, other) in table {
            let compiled = Pattern::new(pattern);
            for probe in matching {
                assert!(compiled.matches(probe), "{pattern} should match {probe}");
            }
            for probe in other {
                assert!(!compiled.matches(probe), "{pattern} should not match {probe}");
            }
        }
    }

    #[test]
    fn a_pattern_without_a_value_stands_whole() {
        assert_eq!(Pattern::new("files_files/*").value_part("files"), "files/*");
        assert_eq!(Pattern::new("foo*").value_part("foo"), "foo*");
    }
}
