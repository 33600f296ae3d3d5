//! Parser of the mapping file, which maps dotted names to names and labels of Prometheus. Its
//! format is that of statsd_exporter.

mod entry;
mod read;
mod template;

use std::path::Path;

use regex_lite::Regex;
use tidegate_cli::Definition;

use crate::base::file;
use crate::settings::read::Values;
pub use template::Template;

const FILE: &str = "PROMETHEUS_MAPPER_YAML";
/// Size limit of the file in bytes. Typical files have some kilobytes.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Limit of mistakes that are reported.
const MAX_REPORTED_MISTAKES: usize = 20;

/// All rules of a mapping file.
#[derive(Debug, Clone, Default)]
pub struct Mapping {
    /// In the order of the file.
    pub rules: Vec<Rule>,
    /// Choice among several globs that match.
    pub choice: GlobChoice,
    /// Presentation of response times without a rule.
    pub observer: Observer,
}

/// Choice among several globs that match a name. Regular expressions are tried after all globs, in
/// order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum GlobChoice {
    /// The first glob in the file.
    #[default]
    First,
    /// The glob that has a literal at the first part where the candidates differ.
    Closest,
}

/// Rule for names that match a pattern.
#[derive(Debug, Clone)]
pub struct Rule {
    /// Pattern of the names.
    pub pattern: Pattern,
    /// Restricts the rule to metrics of this kind.
    pub kind: Option<MetricKind>,
    /// The new name. None drops the metric.
    pub name: Option<Template>,
    /// Labels and their values.
    pub labels: Vec<(String, Template)>,
    /// Presentation of response times.
    pub observer: Observer,
    /// Factor for values.
    pub scale: Option<f64>,
    /// Help text.
    pub help: Option<String>,
}

/// Pattern of names.
#[derive(Debug, Clone)]
pub enum Pattern {
    /// Names whose parts between dots equal these; None is an asterisk.
    Glob(Vec<Option<String>>),
    /// Names in which this expression is found.
    Regex(Regex),
}

/// Kind of metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Times of calls.
    Observer,
}

/// Presentation of response times.
#[derive(Debug, Clone, PartialEq)]
pub enum Observer {
    /// Counts of calls up to each of these times.
    Histogram(Vec<f64>),
    /// Quantiles of times for these fractions of calls.
    Summary(Vec<f64>),
}

impl Default for Observer {
    fn default() -> Self {
        Self::Summary(vec![0.5, 0.9, 0.99])
    }
}

/// The mapping of the settings. Mistakes are reported with their lines.
pub(super) fn build(values: &mut Values) -> Option<Mapping> {
    let path = values.text(FILE);
    if path.is_empty() || !values.boolean("USE_PROMETHEUS") || values.boolean("DISABLE_STATS") {
        return None;
    }
    let definition = values.reported(FILE, &path, definition(&path))?;
    let read = read::mapping(&definition);
    for mistake in read.mistakes.iter().take(MAX_REPORTED_MISTAKES) {
        values.problem(FILE, &path, mistake);
    }
    if !read.without_effect.is_empty() {
        values.warnings.push(format!(
            "{FILE}={path}: {} have no effect",
            read.without_effect.join(", ")
        ));
    }
    read.mistakes.is_empty().then_some(read.mapping)
}

fn definition(path: &str) -> Result<Definition, String> {
    let text = file::read_text(Path::new(path), MAX_FILE_BYTES)
        .map_err(|error| format!("cannot read the file: {error}"))?;
    Definition::parse(Path::new("mapping.yaml"), text)
        .map_err(|mistake| read::located(mistake.position, &mistake.reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> read::ParsedMapping {
        read::mapping(&Definition::parse(Path::new("m.yaml"), text.to_owned()).unwrap())
    }

    fn mistakes(text: &str) -> Vec<String> {
        read(text).mistakes
    }

    #[test]
    fn every_mistake_is_told_with_its_line_and_column() {
        let text = "\
mappings:
  - match: a.*.b
    nmae: x
    labels: {d: \"$1\", \"1x\": y}
  - match: a..b
    name: a-b
  - match: (
    match_type: regex
    name: x
    observer_type: gauge
  - {match: a, name: b, match_metric_type: rate, scale: much, buckets: [x]}
  - match: a
    name: b
    observer_type: histogram
    summary_options: {quantiles: [{quantile: 2}]}
  - 5
extra: 1
";
        let told = mistakes(text);
        for expected in [
            "3:5: there is no such field 'nmae'",
            "2:5: 'name' is missing",
            "4:14: a label's name has two or more letters, digits and _, and begins with no digit",
            "4:23: a label's name has",
            "5:5: a pattern has parts of letters, digits, _ and - with dots between them, or * for any part",
            "6:5: a name has letters, digits and _",
            "7:5: not a regular expression",
            "10:5: expected histogram or summary",
            "11:25: expected counter, gauge, observer or timer",
            "11:50: expected a number",
            "15:5: a histogram has no summary_options",
            "16:5: expected a map",
            "17:1: there is no such field 'extra'",
        ] {
            assert!(
                told.iter().any(|mistake| mistake.starts_with(expected)),
                "{expected} in\n{}",
                told.join("\n")
            );
        }
        let lines: Vec<usize> = told
            .iter()
            .map(|mistake| mistake.split(':').next().unwrap().parse().unwrap())
            .collect();
        assert!(lines.is_sorted(), "{lines:?}");
        let letters = mistakes(r"mappings: [{match: '\pL', match_type: regex, name: a}]");
        assert!(
            letters[0].contains(r"classes of Unicode (\p and \P) are not supported: write"),
            "{letters:?}"
        );
        assert!(mistakes("mappings: []").is_empty());
    }

    #[test]
    fn defaults_hold_for_rules_that_say_nothing_else() {
        let text = "\
defaults: {timer_type: histogram, buckets: [1, 2.5], match_type: regex, glob_disable_ordering: true, ttl: 5m}
mappings:
  - {match: a, name: x}
  - {match: b, name: x, observer_type: summary, quantiles: [{quantile: 0.9, error: 0.1}]}
  - {match: c.*, match_type: glob, name: x, histogram_options: {buckets: [3]}, ttl: 1s, honor_labels: true}
  - {match: d, action: drop, scale: 2, help: h, match_metric_type: timer}
";
        let read = read(text);
        assert_eq!(read.mistakes, [] as [&str; 0]);
        let rules = &read.mapping.rules;
        let observers: Vec<_> = rules.iter().map(|rule| rule.observer.clone()).collect();
        let own = Observer::Histogram(vec![1.0, 2.5]);
        assert_eq!(
            observers,
            [
                own.clone(),
                Observer::Summary(vec![0.9]),
                Observer::Histogram(vec![3.0]),
                own
            ]
        );
        assert!(
            matches!(rules[0].pattern, Pattern::Regex(_))
                && matches!(rules[2].pattern, Pattern::Glob(_))
        );
        assert_eq!(read.mapping.choice, GlobChoice::Closest);
        assert!(
            rules[3].name.is_none()
                && rules[3].scale == Some(2.0)
                && rules[3].kind == Some(MetricKind::Observer)
        );
        assert_eq!(read.without_effect, ["ttl"]);
    }
}
