//! Parser of one rule in the mapping file.

use std::sync::LazyLock;

use regex_lite::Regex;
use serde_json::Value;

use super::read::{Defaults, Fields, MATCHES, MappingReader};
use super::{MetricKind, Observer, Pattern, Rule, Template};
use crate::settings::metrics::pattern;

pub(super) const RULE_FIELDS: [&str; 16] = [
    "match",
    "name",
    "labels",
    "honor_labels",
    "observer_type",
    "timer_type",
    "buckets",
    "quantiles",
    "match_type",
    "help",
    "action",
    "match_metric_type",
    "ttl",
    "summary_options",
    "histogram_options",
    "scale",
];
const KINDS: [&str; 4] = ["counter", "gauge", "observer", "timer"];

fn expression(text: &str) -> Regex {
    Regex::new(text).expect("patterns of ours are right")
}

/// Parts of letters, digits, `_` and `-`. The first part does not begin with a digit.
static GLOB: LazyLock<Regex> = LazyLock::new(|| {
    expression(r"^(\*|[a-zA-Z_][a-zA-Z0-9_\-]*)(\.\*|\.[a-zA-Z0-9_][a-zA-Z0-9_\-]*)*$")
});
static METRIC_NAME: LazyLock<Regex> =
    LazyLock::new(|| expression(r"^([a-zA-Z_]|\$\{?[0-9]+\}?)([a-zA-Z0-9_]|\$\{?[0-9]+\}?)*$"));
static LABEL_NAME: LazyLock<Regex> = LazyLock::new(|| expression("^[a-zA-Z_][a-zA-Z0-9_]+$"));

/// The rule with these fields. None if it has mistakes, which the reader collects.
pub(super) fn rule(
    reader: &mut MappingReader<'_>,
    fields: &Fields,
    defaults: &Defaults,
) -> Option<Rule> {
    let pattern = pattern(reader, fields, defaults);
    let name = name(reader, fields);
    let labels = labels(reader, fields);
    let kind = reader
        .word(fields, "match_metric_type", &KINDS)
        .map(|word| match word {
            "counter" => MetricKind::Counter,
            "gauge" => MetricKind::Gauge,
            _ => MetricKind::Observer,
        });
    // Metrics of the server have no labels before the mapping.
    let _ = reader.flag(fields, "honor_labels");
    let scale = reader.number(fields, "scale");
    let help = reader.text(fields, "help");
    let observer = observer(reader, fields, defaults);
    let pattern = pattern?;
    let template = |text: &str| match &pattern {
        Pattern::Glob(parts) => {
            Template::for_glob(text, parts.iter().filter(|part| part.is_none()).count())
        }
        Pattern::Regex(regex) => Template::for_regex(text, regex),
    };
    Some(Rule {
        kind,
        name: name.map(|name| template(&name)),
        labels: labels
            .into_iter()
            .map(|(label, value)| (label, template(&value)))
            .collect(),
        observer,
        scale,
        help,
        pattern,
    })
}

/// The new name of the metrics. None if the rule drops them.
fn name(reader: &mut MappingReader<'_>, fields: &Fields) -> Option<String> {
    let is_dropped = reader.word(fields, "action", &["map", "drop"]) == Some("drop");
    let name = reader.text(fields, "name").filter(|name| !name.is_empty());
    match &name {
        None if !is_dropped => reader.mistake(&fields.path, "'name' is missing"),
        Some(name) if !METRIC_NAME.is_match(name) => {
            let reason = "a name has letters, digits and _, and parts of the match such as ${1}";
            reader.mistake(&fields.at("name"), reason);
        }
        _ => {}
    }
    name.filter(|_| !is_dropped)
}

fn pattern(
    reader: &mut MappingReader<'_>,
    fields: &Fields,
    defaults: &Defaults,
) -> Option<Pattern> {
    let is_regex = reader
        .word(fields, "match_type", &MATCHES)
        .map_or(defaults.regex, |word| word == "regex");
    let Some(text) = reader.text(fields, "match") else {
        reader.mistake(&fields.path, "'match' is missing");
        return None;
    };
    let pattern = if is_regex {
        pattern::compile(&text).map(Pattern::Regex)
    } else if GLOB.is_match(&text) {
        let part = |part: &str| Some(part.to_owned()).filter(|part| part != "*");
        Ok(Pattern::Glob(text.split('.').map(part).collect()))
    } else {
        let reason = "a pattern has parts of letters, digits, _ and - with dots between them, or * for any part";
        Err(reason.to_owned())
    };
    pattern
        .map_err(|reason| reader.mistake(&fields.at("match"), &reason))
        .ok()
}

fn labels(reader: &mut MappingReader<'_>, fields: &Fields) -> Vec<(String, String)> {
    let path = fields.at("labels");
    let map = match fields.map.get("labels") {
        Some(Value::Object(map)) => map.clone(),
        Some(Value::Null) | None => return Vec::new(),
        Some(_) => {
            reader.mistake(&path, "expected a map");
            return Vec::new();
        }
    };
    let labels = Fields { map, path };
    for label in labels
        .map
        .keys()
        .filter(|label| !LABEL_NAME.is_match(label))
    {
        let reason =
            "a label's name has two or more letters, digits and _, and begins with no digit";
        reader.mistake(&labels.at(label), reason);
    }
    let names = labels.map.keys();
    names
        .map(|label| {
            (
                label.clone(),
                reader.text(&labels, label).unwrap_or_default(),
            )
        })
        .collect()
}

fn observer(reader: &mut MappingReader<'_>, fields: &Fields, defaults: &Defaults) -> Observer {
    let given = reader.observer_type(fields);
    let (buckets, quantiles) = reader.observations(fields);
    let is_histogram = given.map_or(defaults.histogram, |word| word == "histogram");
    let (wanted, other) = if is_histogram {
        ("a histogram", "summary_options")
    } else {
        ("a summary", "histogram_options")
    };
    if fields.map.contains_key(other) && (given.is_some() || defaults.given) {
        reader.mistake(&fields.at(other), &format!("{wanted} has no {other}"));
    }
    match (is_histogram, buckets, quantiles) {
        (true, Some(buckets), _) => Observer::Histogram(buckets),
        (true, None, _) => defaults.histogram(),
        (false, _, Some(quantiles)) => Observer::Summary(quantiles),
        (false, _, None) => defaults.summary(),
    }
}
