//! Search for descriptors that contain a text, in all domains. A call checks a bounded number of
//! descriptors, and the cursor says where the next call goes on.

use tidegate_ratelimit::{Configuration, Domain, Node};
use tidegate_workflow::MatchRank;

use super::shown::{DescriptorShown, FoundShown};
use crate::limits::truncate;

/// Most descriptors that a call checks: some milliseconds.
const MAX_CHECKED_NODES: usize = 50_000;

/// Descriptors that were found, the cursor of each, and the cursor of the first one not checked.
pub(super) struct SearchResult<'c> {
    pub(super) items: Vec<FoundShown<'c>>,
    pub(super) cursors: Vec<String>,
    pub(super) next: Option<String>,
}

/// Finds at most `limit` descriptors after a cursor.
pub(super) fn search<'c>(
    configuration: &'c Configuration,
    text: &str,
    limit: usize,
    cursor: &[usize],
) -> SearchResult<'c> {
    let mut walk = DescriptorWalk::from(configuration, cursor);
    let mut result = SearchResult {
        items: Vec::new(),
        cursors: Vec::new(),
        next: None,
    };
    for _ in 0..MAX_CHECKED_NODES {
        let Some((name, domain, node)) = walk.node() else {
            return result;
        };
        if matches(node, text) {
            if result.items.len() == limit {
                break;
            }
            let file = domain.file_of(walk.levels[0].1);
            let path = walk.levels.iter().map(|(nodes, place)| &nodes[*place]);
            result.items.push(FoundShown::new(
                name,
                path,
                DescriptorShown::new(node, file),
            ));
            result.cursors.push(walk.cursor());
        }
        walk.step(node);
    }
    result.next = walk.node().is_some().then(|| walk.cursor());
    result
}

/// A limit that a text names.
pub(crate) struct FoundLimit {
    /// Keys and values from the top of the domain.
    pub(crate) name: String,
    /// Its path in the configuration.
    pub(crate) rule: String,
    pub(crate) domain: String,
    /// Keys with their values; an empty value stands for any. `None` if they are too long to show.
    pub(crate) entries: Option<Vec<(String, String)>>,
    pub(crate) rank: MatchRank,
}

/// Finds at most `limit` limits by a text in lower case, among the first descriptors that a call
/// may check. The text is a part of the path of the limit, or of its keys and values as in
/// `key=value key=value`. The best come first.
pub(crate) fn limits_with(
    configuration: &Configuration,
    lowercase: &str,
    limit: usize,
) -> Vec<FoundLimit> {
    let wanted = with_one_mark(lowercase);
    let mut walk = DescriptorWalk::from(configuration, &[]);
    let mut found: Vec<FoundLimit> = Vec::new();
    for _ in 0..MAX_CHECKED_NODES {
        let Some((domain, _, node)) = walk.node() else {
            break;
        };
        let own = node.limit.as_ref();
        let own = own.filter(|own| with_one_mark(&own.stats_key.to_lowercase()).contains(&wanted));
        if let Some(own) = own {
            let new = walk.found(domain, &own.stats_key, lowercase);
            let place = found.partition_point(|known| known.rank <= new.rank);
            found.insert(place, new);
            found.truncate(limit);
        }
        walk.step(node);
    }
    found
}

/// The text with one mark for all that stand between keys and values, in a path (`key_value.key`) or
/// not (`key=value key`).
fn with_one_mark(text: &str) -> String {
    text.replace(['=', ' ', '.'], "_")
}

fn entry_text((key, value): (&str, &str)) -> String {
    match value {
        "" => key.to_owned(),
        value => format!("{key}={value}"),
    }
}

/// Whether both texts are shown as a whole.
fn is_shown((key, value): (&str, &str)) -> bool {
    [key, value]
        .iter()
        .all(|text| truncate(text).len() == text.len())
}

/// Whether the key, the value, or `key=value` contains a text.
fn matches(node: &Node, text: &str) -> bool {
    let key = node.key();
    let value = node.value();
    let both = || {
        text.split_once('=')
            .is_some_and(|(left, right)| key.ends_with(left) && value.starts_with(right))
    };
    key.contains(text) || value.contains(text) || both()
}

/// Iterator over all descriptors in the order of the files, each before those below it.
struct DescriptorWalk<'c> {
    configuration: &'c Configuration,
    /// Index of the domain.
    domain: usize,
    current: Option<(&'c str, &'c Domain)>,
    /// Levels down to the next descriptor, each with the index of the descriptor on the path.
    levels: Vec<(&'c [Node], usize)>,
}

impl<'c> DescriptorWalk<'c> {
    /// Starts at the position of a cursor. In a changed configuration it may be another descriptor.
    fn from(configuration: &'c Configuration, cursor: &[usize]) -> Self {
        let (domain, places) = cursor
            .split_first()
            .map_or((0, &[0][..]), |(domain, places)| (*domain, places));
        let mut walk = Self {
            configuration,
            domain,
            current: None,
            levels: Vec::new(),
        };
        walk.enter();
        for (depth, place) in places.iter().enumerate() {
            let Some(level) = walk.levels.last_mut() else {
                break;
            };
            level.1 = *place;
            let below = level.0.get(*place).map(|node| node.below.nodes());
            match below {
                Some(below) if depth + 1 < places.len() => walk.levels.push((below, 0)),
                _ => break,
            }
        }
        walk
    }

    /// Enters the current domain.
    fn enter(&mut self) {
        self.current = self.configuration.domains(self.domain).next();
        self.levels = self
            .current
            .iter()
            .map(|(_, domain)| (domain.level.nodes(), 0))
            .collect();
    }

    /// Returns the next descriptor with its domain. `None` at the end.
    fn node(&mut self) -> Option<(&'c str, &'c Domain, &'c Node)> {
        loop {
            let (name, domain) = self.current?;
            match self.levels.last() {
                Some((nodes, place)) if *place < nodes.len() => {
                    return Some((name, domain, &nodes[*place]));
                }
                Some(_) => {
                    self.levels.pop();
                    self.levels
                        .iter_mut()
                        .last()
                        .into_iter()
                        .for_each(|(_, place)| *place += 1);
                }
                None => {
                    self.domain += 1;
                    self.enter();
                }
            }
        }
    }

    /// Goes on after a descriptor, first to those below it.
    fn step(&mut self, node: &'c Node) {
        self.levels.push((node.below.nodes(), 0));
    }

    /// Returns the limit of the next descriptor, as a search shows it.
    fn found(&self, domain: &str, rule: &str, lowercase: &str) -> FoundLimit {
        let nodes = self.levels.iter().map(|(nodes, place)| &nodes[*place]);
        let entries = nodes.map(|node| (node.key(), node.value()));
        let name: Vec<String> = entries.clone().map(entry_text).collect();
        let name = name.join(" ");
        let ranks = [&name, rule].map(|text| MatchRank::for_name(text, lowercase));
        let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        FoundLimit {
            rank: ranks
                .into_iter()
                .flatten()
                .min()
                .unwrap_or(MatchRank::Other),
            entries: entries
                .clone()
                .all(is_shown)
                .then(|| entries.map(owned).collect()),
            name: truncate(&name).to_owned(),
            rule: truncate(rule).to_owned(),
            domain: truncate(domain).to_owned(),
        }
    }

    fn cursor(&self) -> String {
        let places =
            std::iter::once(self.domain).chain(self.levels.iter().map(|(_, place)| *place));
        places
            .map(|place| place.to_string())
            .collect::<Vec<_>>()
            .join(".")
    }
}

#[cfg(test)]
mod tests {
    use tidegate_ratelimit::{SameDomain, Source};

    use super::*;

    fn configuration() -> Configuration {
        let source = |name: &str, text: &str| Source {
            name: name.to_owned(),
            text: text.as_bytes().to_vec(),
        };
        let first = "domain: a\ndescriptors: [{key: x, value: a1, descriptors: [{key: y}, {key: z, value: a2}]}, {key: a3}]";
        let sources = [
            source("1", first),
            source("2", "domain: b"),
            source("3", "domain: c\ndescriptors: [{key: a4}]"),
        ];
        Configuration::load(&sources, SameDomain::Refuse).unwrap()
    }

    /// All results of a search in pages of this size, with their domains and the lengths of their
    /// paths.
    fn all(text: &str, limit: usize) -> Vec<String> {
        let configuration = configuration();
        let mut cursor = Vec::new();
        let mut all = Vec::new();
        loop {
            let found = search(&configuration, text, limit, &cursor);
            assert!(found.items.len() <= limit);
            all.extend(
                found
                    .items
                    .iter()
                    .map(|item| serde_json::to_value(item).unwrap()),
            );
            let Some(next) = found.next else { break };
            cursor = next
                .split('.')
                .map(|place| place.parse().unwrap())
                .collect();
        }
        let short = |item: &serde_json::Value| {
            let way: Vec<String> = item["entries"]
                .as_array()
                .unwrap()
                .iter()
                .map(|entry| entry[0].as_str().unwrap().to_owned())
                .collect();
            format!("{}:{}", item["domain"].as_str().unwrap(), way.join("."))
        };
        all.iter().map(short).collect()
    }

    #[test]
    fn everything_that_matches_is_found_once_whatever_the_size_of_pages() {
        for limit in [1, 2, 100] {
            assert_eq!(all("a", limit), ["a:x", "a:x.z", "a:a3", "c:a4"]);
            assert_eq!(all("", limit), ["a:x", "a:x.y", "a:x.z", "a:a3", "c:a4"]);
            assert_eq!(all("x=a1", limit), ["a:x"]);
            assert_eq!(all("=a", limit), ["a:x", "a:x.z"]);
            assert_eq!(all("nothing", limit), [""; 0]);
        }
        for cursor in [
            &[9][..],
            &[0, 7],
            &[0, 0, 9],
            &[0, 0, 0, 5],
            &[usize::MAX, usize::MAX],
        ] {
            assert!(
                search(&configuration(), "a", 10, cursor).items.len() <= 4,
                "{cursor:?}"
            );
        }
    }
}
