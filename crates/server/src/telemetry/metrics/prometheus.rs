//! Exporter of the Prometheus text format, with the names and labels of the reference's mapping.
//!
//! As in the reference, a metric without a mapping keeps its name, with invalid characters
//! replaced. Unlike the reference, hits refused by the local cache are not counted twice, extra
//! tags are labels, and values are current.

mod mapped;
mod ports;
mod process;
mod redis;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::MutexGuard;
use std::time::Instant;

use super::dotted::{LIMIT_PREFIX, LOCAL_CACHE_SUFFIX, RARE_SUFFIXES};
use super::limit_counts::LimitCounts;
use super::method_counts::{BUCKETS, METHODS};
use super::name;
use super::snapshot::Snapshot;
use crate::settings::{self, ResponseTime};
use tidegate_api::{QueueSample, WorkflowCounts};
use tidegate_workflow::{CLASS_BOUNDS_MS, Durations, HandlerTimes};

/// Labels of the server itself. An extra tag with one of these names is dropped, since labels must
/// be unique.
const OWN_LABELS: [&str; 16] = [
    "domain",
    "handler",
    "key1",
    "key2",
    "err_type",
    "grpc_method",
    "le",
    "version",
    "queue",
    "pool",
    "outcome",
    "kind",
    "port",
    "reason",
    "status",
    "state",
];

pub(super) use mapped::MappedMetrics;

/// Text of the page, by the rules of a mapping file if there is one.
pub(super) fn encode(
    snapshot: &Snapshot,
    settings: &settings::MetricsSettings,
    mapped: Option<MutexGuard<'_, MappedMetrics>>,
) -> String {
    let mut page = Page {
        out: String::with_capacity(16 * 1024),
        extra: extra_labels(&settings.labels),
    };
    let own = match mapped {
        Some(mut mapped) => {
            mapped.write(&mut page, snapshot, Instant::now());
            "tidegate."
        }
        None => {
            page.limits(snapshot);
            page.unmapped(snapshot);
            page.calls(snapshot, settings.response_time);
            ""
        }
    };
    page.unlabelled(snapshot, own);
    page.ports(snapshot);
    page.queues(snapshot);
    page.workflow_counts(&snapshot.workflow_counts);
    page.handlers(snapshot);
    page.redis(&snapshot.redis);
    page.process();
    page.family("tidegate_build_info", "gauge");
    page.sample("tidegate_build_info", &[("version", crate::VERSION)], 1);
    page.out
}

type QueueValue = fn(&QueueSample) -> u64;

struct Page {
    out: String,
    /// Labels of every sample, formatted.
    extra: String,
}

impl Page {
    fn limits(&mut self, snapshot: &Snapshot) {
        for (at, suffix) in LimitCounts::SUFFIXES.iter().enumerate() {
            // This count is in the names without labels.
            if *suffix == LOCAL_CACHE_SUFFIX {
                continue;
            }
            let mut series = BTreeMap::<_, u64>::new();
            for (key, limit) in &snapshot.limits {
                let value = limit.numbers()[at];
                if value > 0 || !RARE_SUFFIXES.contains(suffix) {
                    let sum = series.entry(name::labels(key)).or_default();
                    *sum = sum.saturating_add(value);
                }
            }
            if !series.is_empty() {
                let name = format!("ratelimit_service_rate_limit_{}", &suffix[1..]);
                self.family(&name, "counter");
                for (labels, value) in &series {
                    self.sample(&name, labels, value);
                }
            }
        }
    }

    fn unmapped(&mut self, snapshot: &Snapshot) {
        let mut names = BTreeMap::<_, u64>::new();
        let mut add = |key: &str, suffix: &str, value| {
            let name = name::escaped(&format!("{LIMIT_PREFIX}{key}{suffix}"));
            let sum = names.entry(name).or_default();
            *sum = sum.saturating_add(value);
        };
        for (key, limit) in &snapshot.limits {
            if limit.over_limit_with_local_cache > 0 {
                add(key, LOCAL_CACHE_SUFFIX, limit.over_limit_with_local_cache);
            }
        }
        for (domain, count) in &snapshot.unknown_domains {
            add(domain, ".domain_not_found", *count);
        }
        for (name, value) in names {
            self.family(&name, "counter");
            self.sample(&name, &[], value);
        }
    }

    fn calls(&mut self, snapshot: &Snapshot, unit: ResponseTime) {
        let name = "ratelimit_service_should_rate_limit_error";
        self.family(name, "counter");
        for (kind, count) in [
            ("redis_error", snapshot.store_errors),
            ("service_error", snapshot.service_errors),
        ] {
            self.sample(name, &[("err_type", kind)], count);
        }

        let name = "ratelimit_service_total_requests";
        self.family(name, "counter");
        for ((_, method), counts) in METHODS.iter().zip(&snapshot.methods) {
            self.sample(name, &[("grpc_method", method)], counts.calls);
        }
        let name = "ratelimit_service_response_time_seconds";
        self.family(name, "histogram");
        let scale = match unit {
            ResponseTime::Seconds => 1e6,
            ResponseTime::Milliseconds => 1e3,
        };
        for ((_, method), counts) in METHODS.iter().zip(&snapshot.methods) {
            let ends = BUCKETS.iter().map(|micros| *micros as f64 / 1e6);
            self.histogram(
                name,
                &[("grpc_method", method)],
                ends.zip(counts.buckets),
                HistogramTotal {
                    sum: counts.microseconds as f64 / scale,
                    calls: counts.calls,
                },
            );
        }
    }

    /// Appends counters and gauges without labels whose dotted names begin with `start`.
    fn unlabelled(&mut self, snapshot: &Snapshot, start: &str) {
        for (name, kind, value) in snapshot.plain_samples() {
            if name.starts_with(start) {
                let name = name::escaped(name);
                self.family(&name, kind.word());
                self.sample(&name, &[], value);
            }
        }
    }

    fn queues(&mut self, snapshot: &Snapshot) {
        let families: [(&str, QueueValue); 4] = [
            ("tidegate_queue_ready_jobs", |queue| queue.ready),
            ("tidegate_queue_running_jobs", |queue| queue.running),
            ("tidegate_queue_oldest_ready_seconds", |queue| queue.age),
            ("tidegate_queue_waiting_workers", |queue| {
                queue.waiting_workers
            }),
        ];
        for (name, value) in families.into_iter().filter(|_| !snapshot.queues.is_empty()) {
            self.family(name, "gauge");
            for queue in &snapshot.queues {
                self.sample(name, &[("queue", &queue.name)], value(queue));
            }
        }
    }

    fn workflow_counts(
        &mut self,
        WorkflowCounts {
            workflows,
            jobs,
            home_partitions,
        }: &WorkflowCounts,
    ) {
        let families = [
            ("tidegate_workflows", "status", workflows),
            ("tidegate_unfinished_jobs", "state", jobs),
        ];
        for (name, label, numbers) in families
            .into_iter()
            .filter(|(.., numbers)| !numbers.is_empty())
        {
            self.family(name, "gauge");
            numbers
                .iter()
                .for_each(|&(word, number)| self.sample(name, &[(label, word)], number));
        }
        if !workflows.is_empty() {
            self.family("tidegate_workflows_home_partitions", "gauge");
            self.sample("tidegate_workflows_home_partitions", &[], home_partitions);
        }
    }

    fn handlers(&mut self, snapshot: &Snapshot) {
        let name = "tidegate_job_attempt_seconds";
        if !snapshot.handlers.is_empty() {
            self.family(name, "histogram");
        }
        for HandlerTimes {
            handler,
            succeeded,
            failed,
        } in &snapshot.handlers
        {
            for (outcome, Durations { classes, sum }) in
                [("succeeded", succeeded), ("failed", failed)]
            {
                let ends = CLASS_BOUNDS_MS.iter().map(|millis| *millis as f64 / 1e3);
                self.histogram(
                    name,
                    &[("handler", handler), ("outcome", outcome)],
                    ends.zip(classes.iter().copied()),
                    HistogramTotal {
                        sum: sum.as_secs_f64(),
                        calls: classes.iter().sum(),
                    },
                );
            }
        }
    }

    /// Appends the samples of a histogram. A bucket has its upper bound in seconds, and its calls
    /// without those of the buckets before it.
    fn histogram(
        &mut self,
        name: &str,
        labels: &[(&str, &str)],
        buckets: impl Iterator<Item = (f64, u64)>,
        total: HistogramTotal,
    ) {
        let mut bucket = |end: &str, calls: u64| {
            let labels = [labels, &[("le", end)]].concat();
            self.sample(&format!("{name}_bucket"), &labels, calls);
        };
        let mut below = 0;
        for (end, calls) in buckets {
            below += calls;
            bucket(&end.to_string(), below);
        }
        bucket("+Inf", total.calls);
        self.sample(&format!("{name}_sum"), labels, total.sum);
        self.sample(&format!("{name}_count"), labels, total.calls);
    }

    fn family(&mut self, name: &str, kind: &str) {
        let _ = writeln!(self.out, "# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        self.out.push_str(name);
        if !(labels.is_empty() && self.extra.is_empty()) {
            let mut text = String::new();
            labels
                .iter()
                .for_each(|(label, value)| push_label(&mut text, label, value));
            text.push_str(&self.extra);
            let _ = write!(self.out, "{{{}}}", text.trim_end_matches(','));
        }
        let _ = writeln!(self.out, " {value}");
    }
}

/// The sum of all values of a histogram in seconds, and their number.
struct HistogramTotal {
    sum: f64,
    calls: u64,
}

fn extra_labels(tags: &[(String, String)]) -> String {
    let mut sorted: BTreeMap<String, &str> = BTreeMap::new();
    for (label, value) in tags {
        sorted.insert(name::escaped(label), value);
    }
    let mut text = String::new();
    for (label, value) in sorted
        .iter()
        .filter(|(label, _)| !OWN_LABELS.contains(&label.as_str()))
    {
        push_label(&mut text, label, value);
    }
    text
}

/// Appends `label="value",`.
fn push_label(out: &mut String, label: &str, value: &str) {
    let _ = write!(out, "{label}=\"");
    for c in value.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            c => out.push(c),
        }
    }
    out.push_str("\",");
}
