//! Search for the mapping rule of a name.

use crate::settings::{Choice, MappedKind, Mapping, Pattern, Rule};

/// Result of applying a rule to a name.
pub(super) struct Found<'r> {
    pub(super) rule: &'r Rule,
    /// None if the rule drops the metric.
    pub(super) name: Option<String>,
    pub(super) labels: Vec<(&'r str, String)>,
}

/// Finds and applies the rule of `name`. Globs are tried first, then regular expressions in order.
pub(super) fn find<'r>(mapping: &'r Mapping, name: &str, kind: MappedKind) -> Option<Found<'r>> {
    let parts: Vec<&str> = name.split('.').collect();
    let rules = || {
        mapping
            .rules
            .iter()
            .filter(|rule| rule.kind.is_none_or(|only| only == kind))
    };
    let globs = rules().filter_map(|rule| match &rule.pattern {
        Pattern::Glob(glob) => matches(glob, &parts).then_some((rule, glob)),
        Pattern::Regex(_) => None,
    });
    let glob = match mapping.choice {
        Choice::First => globs.into_iter().next(),
        // False sorts before true. Of equal globs, the first is chosen.
        Choice::Closest => {
            globs.min_by_key(|(_, glob)| glob.iter().map(Option::is_none).collect::<Vec<_>>())
        }
    };
    if let Some((rule, glob)) = glob {
        let asterisks = glob.iter().zip(&parts).filter(|(part, _)| part.is_none());
        let groups: Vec<&str> = std::iter::once(name)
            .chain(asterisks.map(|(_, part)| *part))
            .collect();
        return Some(applied(rule, |group| groups[group]));
    }
    rules().find_map(|rule| {
        let Pattern::Regex(regex) = &rule.pattern else {
            return None;
        };
        let groups = regex.captures(name)?;
        Some(applied(rule, |group| {
            groups.get(group).map_or("", |group| group.as_str())
        }))
    })
}

fn matches(glob: &[Option<String>], parts: &[&str]) -> bool {
    let is_part =
        |(part, other): (&Option<String>, &&str)| part.as_deref().is_none_or(|part| part == *other);
    glob.len() == parts.len() && glob.iter().zip(parts).all(is_part)
}

fn applied<'r, 'g>(rule: &'r Rule, group: impl Fn(usize) -> &'g str) -> Found<'r> {
    let labels = rule
        .labels
        .iter()
        .map(|(label, value)| (label.as_str(), value.fill(&group)))
        .collect();
    Found {
        name: rule.name.as_ref().map(|name| name.fill(&group)),
        rule,
        labels,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Observer, Template};

    fn rule(number: usize, pattern: Pattern, kind: Option<MappedKind>) -> Rule {
        let name = Template::text(&format!("rule{number}"));
        let observer = Observer::default();
        Rule {
            pattern,
            kind,
            name: Some(name),
            labels: Vec::new(),
            observer,
            scale: None,
            help: None,
        }
    }

    fn glob(text: &str) -> Pattern {
        Pattern::Glob(
            text.split('.')
                .map(|part| Some(part.to_owned()).filter(|part| part != "*"))
                .collect(),
        )
    }

    fn found(mapping: &Mapping, name: &str) -> Option<String> {
        find(mapping, name, MappedKind::Counter).map(|found| found.name.unwrap())
    }

    #[test]
    fn the_first_glob_holds_or_the_closest_and_regular_expressions_come_after_globs() {
        let regex = |text: &str| Pattern::Regex(regex_lite::Regex::new(text).unwrap());
        let patterns = [
            regex("a"),
            glob("a.*.*"),
            glob("a.*.c"),
            glob("a.b.*"),
            glob("*.b"),
            regex("^x"),
            regex("x"),
        ];
        let mut rules: Vec<_> = (0..)
            .zip(patterns)
            .map(|(number, pattern)| rule(number, pattern, None))
            .collect();
        rules.insert(0, rule(9, glob("*.*.*"), Some(MappedKind::Gauge)));
        let mut mapping = Mapping {
            rules,
            ..Mapping::default()
        };
        for (name, first, closest) in [
            ("a.b.c", Some("rule1"), Some("rule3")),
            ("a.x.c", Some("rule1"), Some("rule2")),
            ("a.x.y", Some("rule1"), Some("rule1")),
            ("z.b", Some("rule4"), Some("rule4")),
            ("a", Some("rule0"), Some("rule0")),
            ("xy", Some("rule5"), Some("rule5")),
            ("yx", Some("rule6"), Some("rule6")),
            ("a..", Some("rule1"), Some("rule1")),
            ("z.z.z", None, None),
        ] {
            mapping.choice = Choice::First;
            assert_eq!(found(&mapping, name).as_deref(), first, "{name}");
            mapping.choice = Choice::Closest;
            assert_eq!(found(&mapping, name).as_deref(), closest, "{name}");
        }
    }
}
