//! Parser of the mapping file. All mistakes are collected with their positions.

use serde_json::{Map, Value};
use tidegate_cli::Definition;

use super::entry::{RULE_FIELDS, rule};
use super::{GlobChoice, Mapping, Observer};

/// Limit of rules. Envoy Gateway has fourteen.
const MAX_RULES: usize = 10_000;
const DEFAULTS: [&str; 9] = [
    "observer_type",
    "timer_type",
    "buckets",
    "quantiles",
    "match_type",
    "glob_disable_ordering",
    "ttl",
    "summary_options",
    "histogram_options",
];

/// Result of the parser.
#[derive(Debug, Default)]
pub(super) struct ParsedMapping {
    pub(super) mapping: Mapping,
    pub(super) mistakes: Vec<String>,
    /// Fields that are known and have no effect.
    pub(super) without_effect: Vec<&'static str>,
}

/// Defaults for rules.
#[derive(Debug, Default)]
pub(super) struct Defaults {
    pub(super) regex: bool,
    pub(super) histogram: bool,
    /// Whether the file sets the observer type explicitly.
    pub(super) given: bool,
    pub(super) buckets: Option<Vec<f64>>,
    pub(super) quantiles: Option<Vec<f64>>,
}

/// The fields of a map in the file, with its path.
pub(super) struct Fields {
    pub(super) map: Map<String, Value>,
    pub(super) path: String,
}

impl Fields {
    /// The path of a field.
    pub(super) fn at(&self, name: &str) -> String {
        if self.path.is_empty() {
            name.to_owned()
        } else {
            format!("{}.{name}", self.path)
        }
    }
}

/// Reads values, and collects mistakes.
pub(super) struct MappingReader<'d> {
    definition: &'d Definition,
    pub(super) read: ParsedMapping,
    /// Position of each mistake.
    places: Vec<Option<(usize, usize)>>,
}

/// Parses the whole file.
pub(super) fn mapping(definition: &Definition) -> ParsedMapping {
    let mut reader = MappingReader {
        definition,
        read: ParsedMapping::default(),
        places: Vec::new(),
    };
    let root: Value = serde_json::from_str(&definition.json()).expect("a definition is JSON");
    if let Some(root) = reader.fields(&root, String::new(), &["defaults", "mappings"]) {
        reader.root(&root);
    }
    let mut mistakes: Vec<_> = reader
        .places
        .into_iter()
        .zip(reader.read.mistakes)
        .collect();
    mistakes.sort();
    ParsedMapping {
        mistakes: mistakes.into_iter().map(|(_, mistake)| mistake).collect(),
        ..reader.read
    }
}

impl Defaults {
    pub(super) fn observer(&self) -> Observer {
        if self.histogram {
            self.histogram()
        } else {
            self.summary()
        }
    }

    pub(super) fn histogram(&self) -> Observer {
        // The defaults of the Prometheus client libraries.
        let usual = || {
            vec![
                0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
            ]
        };
        Observer::Histogram(self.buckets.clone().unwrap_or_else(usual))
    }

    pub(super) fn summary(&self) -> Observer {
        self.quantiles
            .clone()
            .map_or_else(Observer::default, Observer::Summary)
    }
}

impl MappingReader<'_> {
    /// Reads the defaults and all rules. A rule with a mistake is left out.
    fn root(&mut self, root: &Fields) {
        let defaults = root.map.get("defaults");
        let defaults = defaults
            .map(|value| self.defaults(value))
            .unwrap_or_default();
        self.read.mapping.observer = defaults.observer();
        let mappings = match root.map.get("mappings") {
            Some(Value::Array(mappings)) => mappings.as_slice(),
            Some(Value::Null) | None => &[],
            Some(_) => return self.mistake("mappings", "expected a list"),
        };
        if mappings.len() > MAX_RULES {
            let reason = format!("{} rules, and there may be {MAX_RULES}", mappings.len());
            self.mistake("mappings", &reason);
        }
        for (number, value) in mappings.iter().enumerate().take(MAX_RULES) {
            let before = self.read.mistakes.len();
            let rule = self
                .fields(value, format!("mappings[{number}]"), &RULE_FIELDS)
                .and_then(|fields| rule(self, &fields, &defaults));
            if before == self.read.mistakes.len() {
                self.read.mapping.rules.extend(rule);
            }
        }
    }

    fn defaults(&mut self, value: &Value) -> Defaults {
        let Some(fields) = self.fields(value, "defaults".to_owned(), &DEFAULTS) else {
            return Defaults::default();
        };
        let observer = self.observer_type(&fields);
        let regex = self.word(&fields, "match_type", &MATCHES) == Some("regex");
        if self.flag(&fields, "glob_disable_ordering") {
            self.read.mapping.choice = GlobChoice::Closest;
        }
        let (buckets, quantiles) = self.observations(&fields);
        Defaults {
            regex,
            histogram: observer == Some("histogram"),
            given: observer.is_some(),
            buckets,
            quantiles,
        }
    }

    pub(super) fn mistake(&mut self, path: &str, reason: &str) {
        let mistake = self.definition.mistake(path, reason);
        self.read.mistakes.push(located(mistake.position, reason));
        self.places.push(mistake.position);
    }

    /// The fields of a map. A field that is not in `known` is a mistake.
    pub(super) fn fields(&mut self, value: &Value, path: String, known: &[&str]) -> Option<Fields> {
        let Value::Object(map) = value else {
            self.mistake(&path, "expected a map");
            return None;
        };
        let map = map.clone();
        let fields = Fields { map, path };
        for name in fields.map.keys() {
            if !known.contains(&name.as_str()) {
                self.mistake(
                    &fields.at(name),
                    &format!("there is no such field '{name}'"),
                );
            }
        }
        Some(fields)
    }

    pub(super) fn text(&mut self, fields: &Fields, name: &str) -> Option<String> {
        match fields.map.get(name)? {
            Value::String(text) => Some(text.clone()),
            // As in the reference, a number or a boolean is accepted as a text.
            Value::Number(number) => Some(number.to_string()),
            Value::Bool(flag) => Some(flag.to_string()),
            Value::Null => None,
            _ => {
                self.mistake(&fields.at(name), "expected a text");
                None
            }
        }
    }

    /// The value if it is one of `words`. An empty text counts as absent.
    pub(super) fn word(
        &mut self,
        fields: &Fields,
        name: &str,
        words: &[&'static str],
    ) -> Option<&'static str> {
        let text = self.text(fields, name).filter(|text| !text.is_empty())?;
        let word = words.iter().find(|word| **word == text);
        if word.is_none() {
            let (last, others) = words.split_last().expect("there are words");
            let reason = format!("expected {} or {last}", others.join(", "));
            self.mistake(&fields.at(name), &reason);
        }
        word.copied()
    }

    pub(super) fn observer_type(&mut self, fields: &Fields) -> Option<&'static str> {
        ["observer_type", "timer_type"]
            .into_iter()
            .find_map(|name| self.word(fields, name, &OBSERVERS))
    }

    pub(super) fn flag(&mut self, fields: &Fields, name: &str) -> bool {
        match fields.map.get(name) {
            Some(Value::Bool(flag)) => *flag,
            Some(Value::Null) | None => false,
            Some(_) => {
                self.mistake(&fields.at(name), "expected true or false");
                false
            }
        }
    }

    pub(super) fn number(&mut self, fields: &Fields, name: &str) -> Option<f64> {
        match fields.map.get(name)? {
            Value::Number(number) => number.as_f64(),
            Value::Null => None,
            _ => {
                self.mistake(&fields.at(name), "expected a number");
                None
            }
        }
    }

    /// Records fields that are known and have no effect.
    fn without_effect(&mut self, fields: &Fields, names: &[&'static str]) {
        for name in names {
            if fields.map.contains_key(*name) && !self.read.without_effect.contains(name) {
                self.read.without_effect.push(name);
            }
        }
    }

    /// Buckets and quantiles, which may be fields of the rule or of its options.
    pub(super) fn observations(&mut self, fields: &Fields) -> (Option<Vec<f64>>, Option<Vec<f64>>) {
        self.without_effect(fields, &["ttl"]);
        (
            self.numbers_of(fields, &BUCKETS),
            self.numbers_of(fields, &QUANTILES),
        )
    }

    fn numbers_of(&mut self, fields: &Fields, numbers: &NumberListField) -> Option<Vec<f64>> {
        let NumberListField {
            name,
            options,
            others,
            item,
        } = numbers;
        let outer = self.numbers(fields, name, *item);
        let value = fields.map.get(*options).filter(|value| !value.is_null());
        let known = [&[*name], *others].concat();
        let inner = value.and_then(|value| self.fields(value, fields.at(options), &known));
        let Some(inner) = inner else { return outer };
        self.without_effect(&inner, others);
        let inner = self.numbers(&inner, name, *item);
        if inner.is_some() && outer.is_some() {
            self.mistake(&fields.at(name), &format!("'{name}' is in {options}, too"));
        }
        inner.or(outer)
    }

    /// Numbers in ascending order. None if the list is empty.
    fn numbers(&mut self, fields: &Fields, name: &str, item: NumberReader) -> Option<Vec<f64>> {
        let path = fields.at(name);
        let items = match fields.map.get(name)? {
            Value::Array(items) if items.len() <= MAX_NUMBERS => items,
            Value::Null => return None,
            _ => {
                self.mistake(&path, &format!("expected a list of at most {MAX_NUMBERS}"));
                return None;
            }
        };
        let items = items.iter().enumerate();
        let mut numbers: Vec<_> = items
            .filter_map(|(number, value)| item(self, value, format!("{path}[{number}]")))
            .collect();
        numbers.sort_by(f64::total_cmp);
        numbers.dedup();
        Some(numbers).filter(|numbers| !numbers.is_empty())
    }

    fn bucket(&mut self, value: &Value, path: String) -> Option<f64> {
        let number = value.as_f64();
        if number.is_none() {
            self.mistake(&path, "expected a number");
        }
        number
    }

    fn quantile(&mut self, value: &Value, path: String) -> Option<f64> {
        let fields = self.fields(value, path, &["quantile", "error"])?;
        let _ = self.number(&fields, "error");
        let quantile = self
            .number(&fields, "quantile")
            .filter(|number| (0.0..=1.0).contains(number));
        if quantile.is_none() {
            self.mistake(&fields.path, "expected a 'quantile' from 0 to 1");
        }
        quantile
    }
}

/// Parser of one number in a list.
type NumberReader = for<'r, 'd> fn(&'r mut MappingReader<'d>, &Value, String) -> Option<f64>;

/// Fields of a list of numbers: its name, and the options that may contain it beside fields without
/// effect.
struct NumberListField {
    name: &'static str,
    options: &'static str,
    others: &'static [&'static str],
    item: NumberReader,
}

const BUCKETS: NumberListField = NumberListField {
    name: "buckets",
    options: "histogram_options",
    others: &[
        "native_histogram_bucket_factor",
        "native_histogram_max_buckets",
    ],
    item: |reader, value, path| reader.bucket(value, path),
};
const QUANTILES: NumberListField = NumberListField {
    name: "quantiles",
    options: "summary_options",
    others: &["max_age", "age_buckets", "buf_cap"],
    item: |reader, value, path| reader.quantile(value, path),
};
/// Limit of buckets or quantiles of a metric.
const MAX_NUMBERS: usize = 200;
const OBSERVERS: [&str; 2] = ["histogram", "summary"];
pub(super) const MATCHES: [&str; 2] = ["glob", "regex"];

/// A mistake behind its line and column, if they are known.
pub(super) fn located(position: Option<(usize, usize)>, reason: &str) -> String {
    match position {
        Some((line, column)) => format!("{line}:{column}: {reason}"),
        None => reason.to_owned(),
    }
}
