//! Mogrifiers: rules that rewrite names for DogStatsD.

use regex_lite::Regex;

use super::pattern;

use crate::settings::read::{MOGRIFIERS, Values};
use crate::settings::table::value::{SettingValue, VariableKind};

/// Variable with the names of the rules in order, and its deprecated spelling.
const NAMES: [&str; 2] = ["USE_DOG_STATSD_MOGRIFIERS", "DOG_STATSD_MOGRIFIERS"];
/// Prefix of the variables of a rule, and its spelling in the documentation of the reference.
const PREFIXES: [&str; 2] = [MOGRIFIERS, "DOG_STATSD_MOGRIFIERS_"];

/// Rule that replaces a matching name, and adds tags.
#[derive(Debug, Clone)]
pub struct Mogrifier {
    /// Pattern of the names.
    pub pattern: Regex,
    /// The new name. `$1` stands for the text that the first group matched.
    pub name: String,
    /// Tags to add. Their values may contain `$1` as well.
    pub tags: Vec<(String, String)>,
}

/// Builds all rules in order. Mistakes are reported.
pub(super) fn build(values: &mut Values) -> Vec<Mogrifier> {
    let [name, old] = NAMES;
    let mut names = values.list(name);
    if values.given.contains(old) {
        if names.is_empty() {
            names = values.list(old);
        }
        values
            .warnings
            .push(format!("{old} is deprecated; use {name}"));
    }
    let rules: Vec<_> = names
        .iter()
        .filter_map(|name| rule(values, name.trim()))
        .collect();
    for variable in values
        .mogrifiers
        .keys()
        .cloned()
        .collect::<std::collections::BTreeSet<_>>()
    {
        values.warnings.push(format!(
            "{variable} has no effect: USE_DOG_STATSD_MOGRIFIERS does not name it"
        ));
    }
    rules
}

/// Builds the rule with this name.
fn rule(values: &mut Values, rule: &str) -> Option<Mogrifier> {
    let pattern = pattern(values, rule);
    let (name_variable, name) = part(values, rule, "NAME");
    let name = name.filter(|name| !name.is_empty());
    if name.is_none() {
        values.problem_of(&name_variable, None, "expected the new name");
    }
    let tags = tags(values, rule);
    Some(Mogrifier {
        pattern: pattern?,
        name: name?,
        tags: tags?,
    })
}

/// The pattern of a rule. A mistake is reported.
fn pattern(values: &mut Values, rule: &str) -> Option<Regex> {
    let (variable, text) = part(values, rule, "PATTERN");
    let compiled = match text.as_deref().unwrap_or_default() {
        "" => Err(format!(
            "expected a regular expression: USE_DOG_STATSD_MOGRIFIERS names the rule {rule}"
        )),
        text => pattern::compile(text),
    };
    compiled
        .map_err(|reason| values.problem_of(&variable, text, reason))
        .ok()
}

/// The tags of a rule. A mistake is reported.
fn tags(values: &mut Values, rule: &str) -> Option<Vec<(String, String)>> {
    let (variable, text) = part(values, rule, "TAGS");
    let is_filled = |(tag, value): &(String, String)| !tag.is_empty() && !value.is_empty();
    let pairs = match VariableKind::Map.read(text.as_deref().unwrap_or_default()) {
        Some(SettingValue::Map(pairs)) if pairs.iter().all(is_filled) => Ok(pairs),
        Some(_) => Err("every tag needs a name and a value".to_owned()),
        None => Err(format!("expected {}", VariableKind::Map.expected())),
    };
    pairs
        .map_err(|reason| values.problem_of(&variable, text, reason))
        .ok()
}

/// The variable of one part of a rule, and its value.
fn part(values: &mut Values, rule: &str, part: &str) -> (String, Option<String>) {
    let [name, old] = PREFIXES.map(|prefix| format!("{prefix}{rule}_{part}").to_uppercase());
    let given = values.mogrifiers.remove(&name);
    let deprecated = values.mogrifiers.remove(&old);
    if deprecated.is_some() {
        values
            .warnings
            .push(format!("{old} is deprecated; use {name}"));
    }
    (name, given.or(deprecated))
}
