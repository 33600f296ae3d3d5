//! Series of mapped names. A name is mapped once, and then kept with its series.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use hashbrown::HashMap;
use tracing::warn;

use super::find::{MappedName, find_rule};
use super::{histogram, summary};
use crate::settings::{MappedKind, Mapping, Observer};
use crate::telemetry::metrics::dotted::{MetricSample, SampleKind};
use crate::telemetry::metrics::name::escaped;
use crate::telemetry::metrics::prometheus::push_label;

/// Size limit of names and series in bytes, for some 300,000 names. Above it, all names are mapped
/// again.
const MAX_BYTES: usize = 64 << 20;
/// Overhead of a name in bytes.
const NAME_OVERHEAD_BYTES: usize = 40;
/// Overhead of a series in bytes, without its labels.
const SERIES_OVERHEAD_BYTES: usize = 160;
/// Prefixes of names of the server itself.
const OWN_PREFIXES: [&str; 2] = ["tidegate_", "process_"];

#[derive(Debug, Default)]
pub(super) struct SeriesTable {
    /// Labels of every series.
    tags: BTreeMap<String, String>,
    /// Index of the series of each name. None if it is not shown.
    names: HashMap<Box<str>, Option<usize>>,
    ids: HashMap<(usize, Box<str>), usize>,
    states: Vec<SeriesState>,
    families: Vec<Family>,
    family_names: HashMap<String, usize>,
    bytes: usize,
    /// Whether a clash of two kinds of metrics under one name was logged.
    kind_clash_logged: bool,
}

/// All series of a name.
#[derive(Debug)]
struct Family {
    name: String,
    family_kind: FamilyKind,
    help: Option<String>,
    series: Vec<usize>,
}

/// Kind of a family, and the presentation of its values.
#[derive(Debug, Clone, PartialEq)]
enum FamilyKind {
    Counter,
    Gauge,
    Observer(Observer),
}

impl FamilyKind {
    /// The kind in the words of Prometheus.
    fn word(&self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Observer(Observer::Histogram(_)) => "histogram",
            Self::Observer(Observer::Summary(_)) => "summary",
        }
    }
}

impl Family {
    /// Appends the lines of one series.
    fn write_value(&self, labels: &str, value: &SampleValue, out: &mut String) {
        let name = &self.name;
        match &self.family_kind {
            FamilyKind::Observer(Observer::Histogram(buckets)) => {
                histogram(out, name, labels, buckets, &value.all)
            }
            FamilyKind::Observer(Observer::Summary(quantiles)) => {
                summary(out, name, labels, quantiles, value)
            }
            FamilyKind::Counter | FamilyKind::Gauge if labels.is_empty() => {
                let _ = writeln!(out, "{name} {}", value.number);
            }
            FamilyKind::Counter | FamilyKind::Gauge => {
                let _ = writeln!(out, "{name}{{{labels}}} {}", value.number);
            }
        }
    }
}

/// One series, and its value while a page is written.
#[derive(Debug)]
struct SeriesState {
    labels: Box<str>,
    scale: Option<f64>,
    is_gauge: bool,
    value: Option<SampleValue>,
}

/// Value that is summed while a page is written.
#[derive(Debug, Default)]
pub(super) struct SampleValue {
    number: f64,
    /// Response times with their numbers of calls.
    pub(super) all: Vec<(f64, u64)>,
    pub(super) recent: Vec<(f64, u64)>,
}

impl SeriesTable {
    pub(super) fn new(tags: &[(String, String)]) -> Self {
        let tags = tags
            .iter()
            .map(|(name, value)| (escaped(name), value.clone()))
            .collect();
        Self {
            tags,
            ..Self::default()
        }
    }

    /// Begins a page.
    pub(super) fn begin(&mut self) {
        if self.bytes > MAX_BYTES {
            *self = Self {
                tags: std::mem::take(&mut self.tags),
                kind_clash_logged: self.kind_clash_logged,
                ..Self::default()
            };
        }
        self.states
            .iter_mut()
            .for_each(|series| series.value = None);
    }

    /// Index of the series of a sample. None if it is not shown.
    pub(super) fn series_id(
        &mut self,
        sample: &MetricSample<'_>,
        rules: &Mapping,
    ) -> Option<usize> {
        let name = sample.name.to_string();
        if let Some(known) = self.names.get(name.as_str()) {
            return *known;
        }
        let id = self.map(&name, sample.kind, rules);
        self.bytes += name.len() + NAME_OVERHEAD_BYTES;
        self.names.insert(name.into(), id);
        id
    }

    pub(super) fn add(&mut self, id: usize, value: u64) {
        let series = &mut self.states[id];
        let value = value as f64 * series.scale.unwrap_or(1.0);
        let sum = series.value.get_or_insert_default();
        sum.number = if series.is_gauge {
            value
        } else {
            sum.number + value
        };
    }

    /// Adds calls with a response time of `micros` to the list of the series that `times` chooses.
    pub(super) fn observe(
        &mut self,
        id: usize,
        micros: u64,
        calls: u64,
        times: fn(&mut SampleValue) -> &mut Vec<(f64, u64)>,
    ) {
        let series = &mut self.states[id];
        let time = micros as f64 / 1e3 * series.scale.unwrap_or(1.0);
        times(series.value.get_or_insert_default()).push((time, calls));
    }

    /// Appends all values.
    pub(super) fn write(&mut self, out: &mut String) {
        for family in &self.families {
            let Family {
                name,
                family_kind,
                help,
                series,
            } = family;
            let states = series.iter().map(|id| &self.states[*id]);
            let mut values = states
                .filter_map(|state| Some((&*state.labels, state.value.as_ref()?)))
                .peekable();
            if values.peek().is_none() {
                continue;
            }
            if let Some(help) = help {
                let _ = writeln!(
                    out,
                    "# HELP {name} {}",
                    help.replace('\\', "\\\\").replace('\n', "\\n")
                );
            }
            let _ = writeln!(out, "# TYPE {name} {}", family_kind.word());
            for (labels, value) in values {
                family.write_value(labels, value, out);
            }
        }
    }

    /// Maps a name by the rules.
    fn map(&mut self, name: &str, kind: SampleKind, rules: &Mapping) -> Option<usize> {
        let mapped_kind = match kind {
            SampleKind::Counter => MappedKind::Counter,
            SampleKind::Gauge => MappedKind::Gauge,
            SampleKind::Timer { .. } => MappedKind::Observer,
        };
        let found = find_rule(rules, name, mapped_kind);
        let observer = found
            .as_ref()
            .map_or(&rules.observer, |found| &found.rule.observer);
        let family_kind = match mapped_kind {
            MappedKind::Counter => FamilyKind::Counter,
            MappedKind::Gauge => FamilyKind::Gauge,
            MappedKind::Observer => FamilyKind::Observer(observer.clone()),
        };
        let mut all = self.tags.clone();
        let (family_name, scale, help) = match found {
            Some(MappedName { rule, name, labels }) => {
                let labels = labels.into_iter();
                all.extend(labels.map(|(label, value)| (label.to_owned(), value)));
                (name?, rule.scale, rule.help.clone())
            }
            None => (name.to_owned(), None, None),
        };
        let family = self.family(escaped(&family_name), family_kind, help)?;
        let mut text = String::new();
        for (label, value) in &all {
            push_label(&mut text, label, value);
        }
        text.truncate(text.trim_end_matches(',').len());
        Some(self.series(family, text.into(), scale, mapped_kind))
    }

    fn series(
        &mut self,
        family: usize,
        labels: Box<str>,
        scale: Option<f64>,
        kind: MappedKind,
    ) -> usize {
        let next = self.states.len();
        let id = *self.ids.entry((family, labels.clone())).or_insert(next);
        if id == next {
            self.bytes += 2 * labels.len() + SERIES_OVERHEAD_BYTES;
            self.states.push(SeriesState {
                labels,
                scale,
                is_gauge: kind == MappedKind::Gauge,
                value: None,
            });
            self.families[family].series.push(id);
        }
        id
    }

    /// Index of the family with this name. None if the name is empty, belongs to the server itself,
    /// or is used by another kind of metric.
    fn family(
        &mut self,
        name: String,
        family_kind: FamilyKind,
        help: Option<String>,
    ) -> Option<usize> {
        if name.is_empty() || OWN_PREFIXES.iter().any(|own| name.starts_with(own)) {
            return None;
        }
        if let Some(family) = self.family_names.get(&name) {
            let known = &self.families[*family].family_kind;
            let same = std::mem::discriminant(known) == std::mem::discriminant(&family_kind);
            if !same && !std::mem::replace(&mut self.kind_clash_logged, true) {
                warn!(
                    name,
                    "the mapping gives one name to metrics of different kinds; those that came later are not shown"
                );
            }
            return same.then_some(*family);
        }
        let id = self.families.len();
        self.family_names.insert(name.clone(), id);
        self.families.push(Family {
            name,
            family_kind,
            help,
            series: Vec::new(),
        });
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::metrics::dotted::{SampleName, SampleOrder};

    fn page(series: &mut SeriesTable, samples: &[(&str, SampleKind, u64)]) -> String {
        series.begin();
        for (name, kind, value) in samples {
            let sample = MetricSample {
                name: SampleName("".into(), name, ""),
                kind: *kind,
                value: *value,
                order: SampleOrder::Server,
            };
            if let Some(id) = series.series_id(&sample, &Mapping::default()) {
                series.add(id, *value);
            }
        }
        let mut out = String::new();
        series.write(&mut out);
        out
    }

    #[test]
    fn one_name_is_of_one_kind_and_none_is_the_servers_own() {
        let mut series = SeriesTable::new(&[]);
        let samples = [
            ("a.b", SampleKind::Counter, 1),
            ("a_b", SampleKind::Counter, 2),
            ("a-b", SampleKind::Gauge, 5),
            ("process.threads", SampleKind::Gauge, 7),
        ];
        assert_eq!(page(&mut series, &samples), "# TYPE a_b counter\na_b 3\n");
        assert_eq!(
            page(&mut series, &samples[..1]),
            "# TYPE a_b counter\na_b 1\n",
            "a page begins from zero"
        );
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut series = SeriesTable::new(&[("app".to_owned(), "x".to_owned())]);
        let long = "x".repeat(100_000);
        for number in 0..1_000 {
            let text = page(
                &mut series,
                &[(&format!("{number}{long}"), SampleKind::Counter, 1)],
            );
            assert!(text.ends_with("{app=\"x\"} 1\n"));
            let held: usize = series.names.keys().map(|name| name.len()).sum();
            assert!(held < MAX_BYTES + 2 * long.len(), "{held}");
        }
    }
}
