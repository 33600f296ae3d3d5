//! Look-up of the limits of keys for operators, with their positions, and hints for misspelled keys.

use super::Configuration;
use super::problem::nearest;
use crate::model::Entry;
use crate::tree::{Level, Limit, LookupState, Node, StepBudget};

/// Most names that a misspelled one is compared with.
const MAX_CANDIDATES: usize = 1_000;

/// Most characters of a client's text in an explanation.
const MAX_SHOWN_CHARS: usize = 100;

/// A limit and its position.
#[derive(Debug, Clone, Copy)]
pub struct DefinedLimit<'c> {
    /// The limit.
    pub limit: &'c Limit,
    /// Name of the file or resource that defines it.
    pub file: &'c str,
    /// The line there, from 1. 0 if it has none.
    pub line: u32,
}

/// Look-up of several limits, whose time is bounded in all.
#[derive(Debug)]
pub struct LimitLookup<'c> {
    configuration: &'c Configuration,
    state: LookupState,
}

impl Configuration {
    /// Returns a look-up of limits.
    #[must_use]
    pub fn lookup(&self) -> LimitLookup<'_> {
        LimitLookup {
            configuration: self,
            state: LookupState::new(StepBudget::for_request()),
        }
    }
}

impl<'c> LimitLookup<'c> {
    /// Returns the limit of these entries. `None` if they have none, or if the bound is reached.
    pub fn find(&mut self, domain: &str, entries: &[Entry]) -> Option<DefinedLimit<'c>> {
        let domain = self.configuration.domain_named(domain)?;
        let nodes = domain.level.follow(entries, &mut self.state);
        let last = nodes.last().filter(|_| nodes.len() == entries.len())?;
        Some(DefinedLimit {
            limit: last.limit.as_ref()?,
            file: domain.file_of(domain.level.index_of_node(nodes[0])?),
            line: last.line,
        })
    }

    /// Explains why these entries have no limit, and names a similar domain, key or value. `None`
    /// if they have one.
    pub fn explain_missing(&mut self, domain: &str, entries: &[Entry]) -> Option<String> {
        let Some(known) = self.configuration.domain_named(domain) else {
            let names = self.configuration.domains(0).map(|(name, _)| name);
            let similar = nearest(domain, names.take(MAX_CANDIDATES));
            let domain = start(domain);
            return Some(format!("no domain '{domain}'{}", did_you_mean(similar)));
        };
        let nodes = known.level.follow(entries, &mut self.state);
        if let Some(unknown) = entries.get(nodes.len()) {
            let level = nodes.last().map_or(&known.level, |node| &node.below);
            return Some(explain_unknown(level, unknown));
        }
        let last = nodes.last()?;
        match last.limit {
            Some(_) => None,
            None if last.below.limits() > 0 => {
                let keys = distinct_keys(&last.below).take(3).collect::<Vec<_>>();
                let keys = keys.join("' or '");
                Some(format!(
                    "'{}' has no limit itself: add an entry with the key '{keys}'",
                    last.key()
                ))
            }
            None => Some(format!("'{}' has no limit", last.key())),
        }
    }
}

/// Explains why a level has no descriptor for an entry.
fn explain_unknown(level: &Level, Entry { key, value }: &Entry) -> String {
    let shown = start(key);
    let of_key = |node: &&Node| node.key() == key;
    if level.nodes().iter().any(|node| of_key(&node)) {
        let values = level.nodes().iter().filter(of_key).map(Node::value);
        let similar = nearest(value, values.take(MAX_CANDIDATES));
        let value = start(value);
        return format!(
            "'{shown}' has no limit for '{value}'{}",
            did_you_mean(similar)
        );
    }
    let similar = nearest(key, distinct_keys(level));
    format!("no key '{shown}' here{}", did_you_mean(similar))
}

/// Returns the start of a text that a client sent.
fn start(text: &str) -> String {
    text.chars().take(MAX_SHOWN_CHARS).collect()
}

/// Returns the keys of a level, most of them once.
fn distinct_keys(level: &Level) -> impl Iterator<Item = &str> {
    let keys = level.nodes().iter().map(Node::key).take(MAX_CANDIDATES);
    let mut last = None;
    keys.filter(move |key| last.replace(*key) != Some(*key))
}

fn did_you_mean(similar: Option<&str>) -> String {
    similar.map_or_else(String::new, |name| format!("; did you mean '{name}'?"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SameDomain, Source};

    const SITE: &str = "\
domain: site
descriptors:
  - {key: user, rate_limit: {unit: minute, requests_per_unit: 60}}
  - key: plan
    value: free
    descriptors:
      - {key: region, value: 'eu-*', rate_limit: {unit: day, requests_per_unit: 1}}
      - {key: tenant, rate_limit: {unlimited: true}}
";

    fn configuration() -> Configuration {
        let source = |name: &str, text: &str| Source {
            name: name.to_owned(),
            text: text.into(),
        };
        let sources = [
            source("a", SITE),
            source("b", "domain: site\ndescriptors: [{key: late}]"),
        ];
        Configuration::load(&sources, SameDomain::Merge).unwrap()
    }

    fn entries(text: &str) -> Vec<Entry> {
        let entry = |(key, value): (&str, &str)| Entry {
            key: key.to_owned(),
            value: value.to_owned(),
        };
        text.split(' ')
            .filter_map(|pair| pair.split_once('='))
            .map(entry)
            .collect()
    }

    #[test]
    fn a_limit_is_found_with_its_file_and_line() {
        let configuration = configuration();
        let mut lookup = configuration.lookup();
        for (text, rule, line) in [
            ("user=ada", "site.user", 3),
            ("plan=free region=eu-1", "site.plan_free.region_eu-*", 7),
            ("plan=free tenant=x", "site.plan_free.tenant", 8),
        ] {
            let found = lookup.find("site", &entries(text)).expect(text);
            assert_eq!(
                (&*found.limit.stats_key, found.file, found.line),
                (rule, "a", line)
            );
            assert_eq!(lookup.explain_missing("site", &entries(text)), None);
        }
        for text in [
            "",
            "plan=free",
            "user=a more=b",
            "late=x",
            "plan=paid tenant=x",
        ] {
            assert!(lookup.find("site", &entries(text)).is_none(), "{text}");
        }
        assert!(lookup.find("sites", &entries("user=ada")).is_none());
    }

    #[test]
    fn what_has_no_limit_is_explained() {
        let configuration = configuration();
        let mut lookup = configuration.lookup();
        let table = [
            ("sit", "user=a", "no domain 'sit'; did you mean 'site'?"),
            ("other", "user=a", "no domain 'other'"),
            ("site", "usr=a", "no key 'usr' here; did you mean 'user'?"),
            (
                "site",
                "plan=fre",
                "'plan' has no limit for 'fre'; did you mean 'free'?",
            ),
            ("site", "user=a b=c", "no key 'b' here"),
            (
                "site",
                "plan=free regio=x",
                "no key 'regio' here; did you mean 'region'?",
            ),
            (
                "site",
                "plan=free",
                "'plan' has no limit itself: add an entry with the key 'region' or 'tenant'",
            ),
            ("site", "late=x", "'late' has no limit"),
        ];
        for (domain, text, expected) in table {
            let explained = lookup.explain_missing(domain, &entries(text));
            assert_eq!(explained.as_deref(), Some(expected));
        }
    }
}
