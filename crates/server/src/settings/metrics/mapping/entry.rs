//! Parser of one rule in the mapping file.

use std::sync::LazyLock;

use regex_lite::{Regex, RegexBuilder};
use serde_json::{Map, Value};

use super::read::{Defaults, MATCHES, OBSERVERS, Reader, at};
use super::{Kind, Pattern, Rule, Template};
use crate::settings::metrics::pattern_mistake;

const FIELDS: [&str; 15] = [
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
];
/// Size limit of a compiled pattern in bytes. Typical patterns take some thousand.
const PATTERN_BYTES: usize = 1 << 20;
const KINDS: [&str; 4] = ["counter", "gauge", "observer", "timer"];

/// The fields of a rule in the file, with their path.
pub(super) struct Entry {
    map: Map<String, Value>,
    path: String,
}

fn expression(text: &str) -> Regex {
    Regex::new(text).expect("patterns of ours are right")
}

/// Parts of letters, digits, `_` and `-`. The first part does not begin with a digit.
static GLOB: LazyLock<Regex> = LazyLock::new(|| {
    expression(r"^(\*|[a-zA-Z_][a-zA-Z0-9_\-]*)(\.\*|\.[a-zA-Z0-9_][a-zA-Z0-9_\-]*)*$")
});
static NAME: LazyLock<Regex> =
    LazyLock::new(|| expression(r"^([a-zA-Z_]|\$\{?[0-9]+\}?)([a-zA-Z0-9_]|\$\{?[0-9]+\}?)*$"));
static LABEL: LazyLock<Regex> = LazyLock::new(|| expression("^[a-zA-Z_][a-zA-Z0-9_]+$"));

impl Entry {
    pub(super) fn read(reader: &mut Reader<'_>, value: &Value, path: &str) -> Option<Self> {
        let map = reader.map(value, path, &[&FIELDS[..], &["scale"]].concat())?;
        Some(Self {
            map,
            path: path.to_owned(),
        })
    }

    /// The rule. None if it has mistakes, which the reader collects.
    pub(super) fn rule(self, reader: &mut Reader<'_>, defaults: &Defaults) -> Option<Rule> {
        let Self { map, path } = &self;
        let pattern = self.pattern(reader, defaults);
        let is_dropped = reader.word(map, path, "action", &["map", "drop"]) == Some("drop");
        let name = reader
            .text(map, path, "name")
            .filter(|name| !name.is_empty());
        match &name {
            None if !is_dropped => reader.mistake(path, "'name' is missing"),
            Some(name) if !NAME.is_match(name) => {
                reader.mistake(
                    &at(path, "name"),
                    "a name has letters, digits and _, and parts of the match such as ${1}",
                );
            }
            _ => {}
        }
        let labels = self.labels(reader);
        let kind = reader
            .word(map, path, "match_metric_type", &KINDS)
            .map(|word| match word {
                "counter" => Kind::Counter,
                "gauge" => Kind::Gauge,
                _ => Kind::Observer,
            });
        // Metrics of the server have no labels before the mapping.
        let _ = reader.flag(map, path, "honor_labels");
        let scale = reader.number(map, path, "scale");
        let help = reader.text(map, path, "help");
        let observer = self.observer(reader, defaults);
        let pattern = pattern?;
        let template = |text: &str| match &pattern {
            Pattern::Glob(parts) => {
                Template::of_glob(text, parts.iter().filter(|part| part.is_none()).count())
            }
            Pattern::Regex(regex) => Template::of_regex(text, regex),
        };
        let name = name.filter(|_| !is_dropped).map(|name| template(&name));
        let labels = labels
            .iter()
            .map(|(label, value)| (label.clone(), template(value)))
            .collect();
        Some(Rule {
            pattern,
            kind,
            name,
            labels,
            observer,
            scale,
            help,
        })
    }

    fn pattern(&self, reader: &mut Reader<'_>, defaults: &Defaults) -> Option<Pattern> {
        let Self { map, path } = self;
        let regex = reader
            .word(map, path, "match_type", &MATCHES)
            .map_or(defaults.regex, |word| word == "regex");
        let Some(text) = reader.text(map, path, "match") else {
            reader.mistake(path, "'match' is missing");
            return None;
        };
        if regex {
            let compiled = RegexBuilder::new(&text).size_limit(PATTERN_BYTES).build();
            return compiled
                .map_err(|error| reader.mistake(&at(path, "match"), &pattern_mistake(&error)))
                .map(Pattern::Regex)
                .ok();
        }
        if !GLOB.is_match(&text) {
            let reason = "a pattern has parts of letters, digits, _ and - with dots between them, or * for any part";
            reader.mistake(&at(path, "match"), reason);
            return None;
        }
        let part = |part: &str| Some(part.to_owned()).filter(|part| part != "*");
        Some(Pattern::Glob(text.split('.').map(part).collect()))
    }

    fn labels(&self, reader: &mut Reader<'_>) -> Vec<(String, String)> {
        let path = at(&self.path, "labels");
        let map = match self.map.get("labels") {
            Some(Value::Object(map)) => map,
            Some(Value::Null) | None => return Vec::new(),
            Some(_) => {
                reader.mistake(&path, "expected a map");
                return Vec::new();
            }
        };
        for label in map.keys().filter(|label| !LABEL.is_match(label)) {
            let reason =
                "a label's name has two or more letters, digits and _, and begins with no digit";
            reader.mistake(&at(&path, label), reason);
        }
        map.keys()
            .map(|label| {
                (
                    label.clone(),
                    reader.text(map, &path, label).unwrap_or_default(),
                )
            })
            .collect()
    }

    fn observer(&self, reader: &mut Reader<'_>, defaults: &Defaults) -> super::Observer {
        let Self { map, path } = self;
        let given = ["observer_type", "timer_type"]
            .into_iter()
            .find_map(|name| reader.word(map, path, name, &OBSERVERS));
        let (buckets, quantiles) = reader.observations(map, path);
        let is_histogram = given.map_or(defaults.histogram, |word| word == "histogram");
        let other = if is_histogram {
            "summary_options"
        } else {
            "histogram_options"
        };
        let wanted = if is_histogram {
            "a histogram"
        } else {
            "a summary"
        };
        if map.contains_key(other) && (given.is_some() || defaults.given) {
            reader.mistake(&at(path, other), &format!("{wanted} has no {other}"));
        }
        match (is_histogram, buckets, quantiles) {
            (true, Some(buckets), _) => super::Observer::Histogram(buckets),
            (true, None, _) => defaults.histogram(),
            (false, _, Some(quantiles)) => super::Observer::Summary(quantiles),
            (false, _, None) => defaults.summary(),
        }
    }
}
