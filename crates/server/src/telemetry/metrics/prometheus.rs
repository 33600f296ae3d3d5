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

use super::limit_counts::LimitCounts;
use super::method_counts::{BUCKETS, METHODS, MethodCounts};
use super::name;
use super::snapshot::Snapshot;
use crate::settings::{self, ResponseTime};
use tidegate_api::{Census, QueueSample};
use tidegate_workflow::{CLASSES, Durations, HandlerTimes};

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

pub(super) use mapped::Mapped;

/// Text of the page, by the rules of a mapping file if there is one.
pub(super) fn encode(
    snapshot: &Snapshot,
    settings: &settings::Metrics,
    mapped: Option<MutexGuard<'_, Mapped>>,
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
    page.plain(snapshot, own);
    page.ports(snapshot);
    page.queues(snapshot);
    page.census(&snapshot.census);
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

/// A counter of limits.
struct Column {
    suffix: &'static str,
    value: fn(&LimitCounts) -> u64,
    zeros: Zeros,
}

/// Whether limits without such hits are shown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Zeros {
    Shown,
    Hidden,
}

const COLUMNS: [Column; 6] = [
    Column {
        suffix: "total_hits",
        value: |limit| limit.total_hits,
        zeros: Zeros::Shown,
    },
    Column {
        suffix: "over_limit",
        value: |limit| limit.over_limit,
        zeros: Zeros::Shown,
    },
    Column {
        suffix: "near_limit",
        value: |limit| limit.near_limit,
        zeros: Zeros::Shown,
    },
    Column {
        suffix: "within_limit",
        value: |limit| limit.within_limit,
        zeros: Zeros::Shown,
    },
    Column {
        suffix: "shadow_mode",
        value: |limit| limit.shadow_mode,
        zeros: Zeros::Hidden,
    },
    Column {
        suffix: "total_negative_hits",
        value: |limit| limit.total_negative_hits,
        zeros: Zeros::Hidden,
    },
];

impl Page {
    fn limits(&mut self, snapshot: &Snapshot) {
        for column in &COLUMNS {
            let mut series = BTreeMap::<_, u64>::new();
            for (key, limit) in &snapshot.limits {
                let value = (column.value)(limit);
                if value > 0 || column.zeros == Zeros::Shown {
                    let sum = series.entry(name::labels(key)).or_default();
                    *sum = sum.saturating_add(value);
                }
            }
            let name = format!("ratelimit_service_rate_limit_{}", column.suffix);
            self.series(&name, &series);
        }
    }

    fn unmapped(&mut self, snapshot: &Snapshot) {
        let mut names = BTreeMap::<_, u64>::new();
        let mut add = |key: &str, suffix: &str, value| {
            let name = name::escaped(&format!("ratelimit.service.rate_limit.{key}.{suffix}"));
            let sum = names.entry(name).or_default();
            *sum = sum.saturating_add(value);
        };
        for (key, limit) in &snapshot.limits {
            if limit.over_limit_with_local_cache > 0 {
                add(
                    key,
                    "over_limit_with_local_cache",
                    limit.over_limit_with_local_cache,
                );
            }
        }
        for (domain, count) in &snapshot.unknown_domains {
            add(domain, "domain_not_found", *count);
        }
        for (name, value) in names {
            self.family(&name, "counter");
            self.sample(&name, &[], value);
        }
    }

    fn calls(&mut self, snapshot: &Snapshot, unit: ResponseTime) {
        let name = "ratelimit_service_should_rate_limit_error";
        self.family(name, "counter");
        self.sample(name, &[("err_type", "redis_error")], snapshot.store_errors);
        self.sample(
            name,
            &[("err_type", "service_error")],
            snapshot.service_errors,
        );

        let name = "ratelimit_service_total_requests";
        self.family(name, "counter");
        for ((_, method), counts) in METHODS.iter().zip(&snapshot.methods) {
            self.sample(name, &[("grpc_method", method)], counts.calls);
        }
        self.family("ratelimit_service_response_time_seconds", "histogram");
        for ((_, method), counts) in METHODS.iter().zip(&snapshot.methods) {
            self.histogram(method, counts, unit);
        }
    }

    /// Appends counters and gauges without labels whose dotted names begin with `start`.
    fn plain(&mut self, snapshot: &Snapshot, start: &str) {
        for (counter, value) in snapshot
            .counters
            .iter()
            .filter(|(name, _)| name.starts_with(start))
        {
            let name = name::escaped(counter);
            self.family(&name, "counter");
            self.sample(&name, &[], *value);
        }
        for (gauge, value) in snapshot
            .gauges
            .iter()
            .filter(|(name, _)| name.starts_with(start))
        {
            let name = name::escaped(gauge);
            self.family(&name, "gauge");
            self.sample(&name, &[], *value);
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

    fn census(
        &mut self,
        Census {
            workflows,
            jobs,
            home_partitions,
        }: &Census,
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
                let labels = [("handler", handler.as_str()), ("outcome", outcome)];
                let mut below = 0;
                let ends = CLASSES
                    .iter()
                    .map(|&millis| (millis as f64 / 1e3).to_string())
                    .chain(["+Inf".to_owned()]);
                for (end, class) in ends.zip(classes) {
                    below += class;
                    self.sample(
                        &format!("{name}_bucket"),
                        &[labels[0], labels[1], ("le", &end)],
                        below,
                    );
                }
                self.sample(&format!("{name}_sum"), &labels, sum.as_secs_f64());
                self.sample(&format!("{name}_count"), &labels, below);
            }
        }
    }

    fn histogram(&mut self, method: &str, counts: &MethodCounts, unit: ResponseTime) {
        let name = "ratelimit_service_response_time_seconds";
        let mut below = 0;
        for ((bound, _), bucket) in BUCKETS.iter().zip(counts.buckets) {
            below += bucket;
            self.sample(
                &format!("{name}_bucket"),
                &[("grpc_method", method), ("le", bound)],
                below,
            );
        }
        self.sample(
            &format!("{name}_bucket"),
            &[("grpc_method", method), ("le", "+Inf")],
            counts.calls,
        );
        let scale = match unit {
            ResponseTime::Seconds => 1e6,
            ResponseTime::Milliseconds => 1e3,
        };
        self.sample(
            &format!("{name}_sum"),
            &[("grpc_method", method)],
            counts.microseconds as f64 / scale,
        );
        self.sample(
            &format!("{name}_count"),
            &[("grpc_method", method)],
            counts.calls,
        );
    }

    fn series(&mut self, name: &str, series: &BTreeMap<Vec<(&str, &str)>, u64>) {
        if series.is_empty() {
            return;
        }
        self.family(name, "counter");
        for (labels, value) in series {
            self.sample(name, labels, value);
        }
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
