//! Export of metrics.

mod mapping;
mod mogrifiers;
mod pattern;
mod statsd;

use super::listen::{Endpoint, host_and_port};
use super::read::Values;
pub use mapping::{
    GlobChoice, Mapping, MetricKind as MappedKind, Observer, Pattern, Rule, Template,
};
pub use mogrifiers::Mogrifier;
pub use statsd::{Dialect, Statsd, Transport};

/// Export of metrics.
#[derive(Debug, Clone)]
pub struct MetricsSettings {
    /// StatsD server that receives the metrics, if there is one.
    pub statsd: Option<Statsd>,
    /// Port for Prometheus alone, and its path.
    pub prometheus: Option<(Endpoint, String)>,
    /// Names and labels for Prometheus. None for those of the reference.
    pub mapping: Option<Mapping>,
    /// Labels of every metric.
    pub labels: Vec<(String, String)>,
    /// Unit of response times.
    pub response_time: ResponseTime,
    /// Limit of the number of series that limits can create.
    pub max_names: usize,
}

/// Unit of response times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseTime {
    /// Seconds, as the name of the metric says.
    Seconds,
    /// Milliseconds, as old dashboards expect.
    Milliseconds,
}

impl MetricsSettings {
    /// Whether an exporter needs a histogram of response times in milliseconds.
    pub(crate) fn needs_times(&self) -> bool {
        self.statsd.is_some() || self.mapping.is_some()
    }
}

/// Variables that select a sink.
const SINKS: [&str; 3] = ["USE_DOG_STATSD", "USE_STATSD", "USE_PROMETHEUS"];

pub(super) fn build(values: &mut Values) -> MetricsSettings {
    check_single_sink(values);
    MetricsSettings {
        statsd: statsd::build(values),
        prometheus: prometheus(values),
        mapping: mapping::build(values),
        labels: labels(values),
        response_time: values.either(
            "PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS",
            ResponseTime::Milliseconds,
            ResponseTime::Seconds,
        ),
        max_names: values.integer("TIDEGATE_MAX_METRIC_KEYS", 0..=i64::MAX) as usize,
    }
}

/// Reports more than one sink as a mistake, as the reference does.
fn check_single_sink(values: &mut Values) {
    let on: Vec<&'static str> = SINKS
        .into_iter()
        .filter(|name| values.boolean(name))
        .collect();
    if on.len() > 1 && !values.boolean("DISABLE_STATS") {
        let reason = format!(
            "{} are on, and metrics have one destination: set one of {} only",
            on.join(" and "),
            SINKS.join(", ")
        );
        values.problem(on[0], "true", reason);
    }
}

fn labels(values: &mut Values) -> Vec<(String, String)> {
    let labels = values.map("EXTRA_TAGS");
    if let Some((_, value)) = labels.iter().find(|(name, _)| name.is_empty()) {
        values.problem("EXTRA_TAGS", &format!(":{value}"), "a label needs a name");
    }
    labels
}

/// Whether a path contains no router pattern, and only characters that a request path can have.
fn is_plain_path(path: &str) -> bool {
    let plain = |part: &str| !part.starts_with([':', '*']);
    let letter = |byte: u8| byte.is_ascii_graphic() && !b"{}?#".contains(&byte);
    path.starts_with('/') && path.bytes().all(letter) && path.split('/').all(plain)
}

fn prometheus(values: &mut Values) -> Option<(Endpoint, String)> {
    if !values.boolean("USE_PROMETHEUS") || values.boolean("DISABLE_STATS") {
        return None;
    }
    let path = values.text("PROMETHEUS_PATH");
    if !is_plain_path(&path) {
        let expected = "expected a path that starts with /, without spaces and ? # { }, and no part of which starts with : or *";
        values.problem("PROMETHEUS_PATH", &path, expected.to_owned());
    }
    let address = values.text("PROMETHEUS_ADDR");
    let endpoint = host_and_port(&address).ok_or("expected host:port or :port");
    Some((
        values.reported("PROMETHEUS_ADDR", &address, endpoint)?,
        path,
    ))
}
