//! The rule of a name.

use crate::settings::{Choice, MappedKind, Mapping, Pattern, Rule};

/// What a rule makes of a name.
pub(super) struct Found<'r> {
    pub(super) rule: &'r Rule,
    /// None: the metric is not shown.
    pub(super) name: Option<String>,
    pub(super) labels: Vec<(&'r str, String)>,
}

/// The rule of `name`, applied: globs go first, then regular expressions in their order.
pub(super) fn find<'r>(mapping: &'r Mapping, name: &str, kind: MappedKind) -> Option<Found<'r>> {
    let parts: Vec<&str> = name.split('.').collect();
    let rules = || mapping.rules.iter().filter(|rule| rule.kind.is_none_or(|only| only == kind));
    let globs = rules().filter_map(|rule| match &rule.pattern {
        Pattern::Glob(glob) => matches(glob, &parts).then_some((rule, glob)),
        Pattern::Regex(_) => None,
    });
    let glob = match mapping.choice {
        Choice::First => globs.into_iter().next(),
        // False sorts before true. The first of equal ones is taken.
        Choice::Closest => globs.min_by_key(|(_, glob)| glob.iter().map(Option::is_none).collect::<Vec<_>>()),
    };
    if let Some((rule, glob)) = glob {
        let asterisks = glob.iter().zip(&parts).filter(|(part, _)| part.is_none());
        let groups: Vec<&str> = std::iter::once(name).chain(asterisks.map(|(_, part)| *part)).collect();
        return Some(applied(rule, |group| groups[group]));
    }
    rules().find_map(|rule| {
        let Pattern::Regex(regex) = &rule.pattern else { return None };
        let groups = regex.captures(name)?;
        Some(applied(rule, |group| groups.get(group).map_or("", |group| group.as_str())))
    })
}

fn matches(glob: &[Option<String>], parts: &[&str]) -> bool {
    let is_part = |(part, other): (&Option<String>, &&str)| part.as_deref().is_none_or(|part| part == *other);
    glob.len() == parts.len() && glob.iter().zip(parts).all(is_part)
}

fn applied<'r, 'g>(rule: &'r Rule, group: impl Fn(usize) -> &'g str) -> Found<'r> {
    let labels = rule.labels.iter().map(|(label, value)| (label.as_str(), value.fill(&group))).collect();
    Found { name: rule.name.as_ref().map(|name| name.fill(&group)), rule, labels }
}
