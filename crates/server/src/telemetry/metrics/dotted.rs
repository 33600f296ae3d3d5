//! Counters and gauges under the dotted names of the reference: the page `/stats`, and the samples
//! for StatsD.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;

use tidegate_pipeline::Stats;

use super::limit_counts::{COUNTS, LimitCounts};
use super::method_counts::{METHODS, micros};
use super::snapshot::Snapshot;
use crate::base::text::quoted;

pub(super) const LIMIT_PREFIX: &str = "ratelimit.service.rate_limit.";
/// Ends of the names of counts that Prometheus shows once they are above zero.
pub(super) const RARE_SUFFIXES: [&str; 3] =
    [LOCAL_CACHE_SUFFIX, ".shadow_mode", ".total_negative_hits"];
pub(super) const LOCAL_CACHE_SUFFIX: &str = ".over_limit_with_local_cache";

/// Type of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SampleKind {
    Counter,
    Gauge,
    /// Calls with a response time of `micros`. The value is their number.
    Timer {
        micros: u64,
    },
}

impl SampleKind {
    /// Type of the metric in the words of Prometheus.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Timer { .. } => "histogram",
        }
    }
}

/// A named value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MetricSample<'s> {
    pub(crate) name: SampleName<'s>,
    pub(crate) kind: SampleKind,
    pub(crate) value: u64,
    pub(crate) order: SampleOrder<'s>,
}

/// A name in three parts. A client may have chosen the middle one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SampleName<'s>(
    pub(crate) Cow<'s, str>,
    pub(crate) &'s str,
    pub(crate) &'s str,
);

/// Position of a sample in the order of all samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SampleOrder<'s> {
    Limit(&'s str),
    Domain(&'s str),
    /// Names of the server itself, which come after all others.
    Server,
}

impl fmt::Display for SampleName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}{}", self.0, self.1, self.2)
    }
}

/// Text of the page: a line for each counter and gauge, sorted.
pub(super) fn encode(snapshot: &Snapshot) -> String {
    let samples = snapshot
        .samples()
        .filter(|sample| !matches!(sample.kind, SampleKind::Timer { .. }));
    // Clients choose the names of domains and the values of descriptors, so names are escaped.
    let line = |MetricSample { name, value, .. }| {
        format!("{}: {value}\n", quoted(&name.to_string(), usize::MAX))
    };
    let mut lines: Vec<_> = samples.map(line).collect();
    lines.sort();
    lines.concat()
}

impl Snapshot {
    /// All samples.
    pub(crate) fn samples(&self) -> impl Iterator<Item = MetricSample<'_>> {
        let limits = self.limits.iter().flat_map(|(key, now)| limit(key, now));
        let domains = self
            .unknown_domains
            .iter()
            .map(|(name, count)| domain(name, *count));
        limits.chain(domains).chain(self.server_samples())
    }

    /// Samples since `earlier`: gauges as they are, and the increase of counters and timers. A
    /// counter that is lower than before was reset for another limit. It counts as unchanged, so
    /// that nothing is sent twice.
    pub(crate) fn since<'s, 'e>(
        &'s self,
        earlier: &'e Self,
    ) -> impl Iterator<Item = MetricSample<'s>> + use<'s, 'e> {
        let limits = join_by_name(&self.limits, &earlier.limits).flat_map(|(key, now, was)| {
            let was = was.copied().unwrap_or_default();
            limit(key, now)
                .into_iter()
                .zip(limit(key, &was))
                .map(|(now, was)| increase(now, was.value))
        });
        let domains = join_by_name(&self.unknown_domains, &earlier.unknown_domains)
            .map(|(name, now, was)| increase(domain(name, *now), was.copied().unwrap_or_default()));
        let was: std::collections::HashMap<String, u64> =
            earlier.server_samples().filter_map(counter_key).collect();
        let own = self
            .server_samples()
            .map(move |now| match counter_key(now.clone()) {
                Some((name, _)) => increase(now, was.get(&name).copied().unwrap_or_default()),
                None => now,
            });
        let changed =
            |sample: &MetricSample<'_>| sample.kind == SampleKind::Gauge || sample.value > 0;
        limits.chain(domains).chain(own).filter(changed)
    }

    /// Copies the values of `now` up to the sample `last`, which were sent.
    pub(crate) fn copy_until(&mut self, now: &Self, last: SampleOrder<'_>) {
        match last {
            SampleOrder::Limit(last) => replace_until(&mut self.limits, &now.limits, last),
            SampleOrder::Domain(last) => {
                self.limits.clone_from(&now.limits);
                replace_until(&mut self.unknown_domains, &now.unknown_domains, last);
            }
            SampleOrder::Server => self.clone_from(now),
        }
    }

    /// Samples of the server itself.
    fn server_samples(&self) -> impl Iterator<Item = MetricSample<'_>> {
        let totals = METHODS
            .iter()
            .zip(&self.methods)
            .map(|((_, method), counts)| {
                let name = SampleName("ratelimit_server.".into(), method, ".total_requests");
                server_sample(name, SampleKind::Counter, counts.calls)
            });
        let times = METHODS
            .iter()
            .zip(&self.times)
            .flat_map(|((_, method), times)| {
                let classes = times.iter().enumerate().filter(|(_, calls)| **calls > 0);
                classes.map(|(class, calls)| {
                    let name = SampleName("ratelimit_server.".into(), method, ".response_time");
                    let micros = micros(class);
                    server_sample(name, SampleKind::Timer { micros }, *calls)
                })
            });
        let errors = [
            ("redis_error", self.store_errors),
            ("service_error", self.service_errors),
        ]
        .map(|(kind, count)| {
            let name = SampleName("ratelimit.service.call.should_rate_limit.".into(), kind, "");
            server_sample(name, SampleKind::Counter, count)
        });
        let redis = self.redis.iter().flat_map(|(pool, stats)| {
            DOTTED_POOL_METRICS.iter().map(move |(name, kind, value)| {
                let prefix = if *pool == "main" {
                    "tidegate.redis.".into()
                } else {
                    format!("tidegate.redis.{pool}.").into()
                };
                server_sample(SampleName(prefix, name, ""), *kind, value(stats))
            })
        });
        let plain = self
            .plain_samples()
            .map(|(name, kind, value)| server_sample(SampleName("".into(), name, ""), kind, value));
        totals.chain(times).chain(errors).chain(redis).chain(plain)
    }

    /// Names, kinds and values of the counters and gauges without labels.
    pub(super) fn plain_samples(&self) -> impl Iterator<Item = (&'static str, SampleKind, u64)> {
        [
            (SampleKind::Counter, &self.counters),
            (SampleKind::Gauge, &self.gauges),
        ]
        .into_iter()
        .flat_map(|(kind, samples)| {
            samples
                .iter()
                .map(move |(name, value)| (*name, kind, *value))
        })
    }
}

pub(super) type PoolValue = fn(&Stats) -> u64;
/// End of a name, kind and value.
pub(super) type PoolMetric = (&'static str, SampleKind, PoolValue);

/// Metrics whose only label is the pool, and which have dotted names as well.
pub(super) const DOTTED_POOL_METRICS: [PoolMetric; 5] = [
    ("commands", SampleKind::Counter, |stats| stats.commands),
    ("replies", SampleKind::Counter, |stats| stats.replies),
    ("writes", SampleKind::Counter, |stats| stats.writes),
    ("connect_failures", SampleKind::Counter, |stats| {
        stats.connect_failures
    }),
    ("waiting_commands", SampleKind::Gauge, |stats| stats.waiting),
];

fn limit<'s>(key: &'s str, limit: &LimitCounts) -> [MetricSample<'s>; COUNTS] {
    let numbers = limit.numbers();
    std::array::from_fn(|at| MetricSample {
        name: SampleName(LIMIT_PREFIX.into(), key, LimitCounts::SUFFIXES[at]),
        kind: SampleKind::Counter,
        value: numbers[at],
        order: SampleOrder::Limit(key),
    })
}

fn domain(domain: &str, value: u64) -> MetricSample<'_> {
    MetricSample {
        name: SampleName(LIMIT_PREFIX.into(), domain, ".domain_not_found"),
        kind: SampleKind::Counter,
        value,
        order: SampleOrder::Domain(domain),
    }
}

fn server_sample(name: SampleName<'_>, kind: SampleKind, value: u64) -> MetricSample<'_> {
    MetricSample {
        name,
        kind,
        value,
        order: SampleOrder::Server,
    }
}

fn increase(now: MetricSample<'_>, was: u64) -> MetricSample<'_> {
    MetricSample {
        value: now.value.saturating_sub(was),
        ..now
    }
}

/// Key and value of a counter or a timer class. None for a gauge, which has no increase.
fn counter_key(sample: MetricSample<'_>) -> Option<(String, u64)> {
    match sample.kind {
        SampleKind::Gauge => None,
        SampleKind::Counter => Some((sample.name.to_string(), sample.value)),
        SampleKind::Timer { micros } => Some((format!("{}:{micros}", sample.name), sample.value)),
    }
}

/// Entries of `now`, each with the entry of `was` under this name.
fn join_by_name<'n, 'w, V>(
    now: &'n BTreeMap<String, V>,
    was: &'w BTreeMap<String, V>,
) -> impl Iterator<Item = (&'n str, &'n V, Option<&'w V>)> {
    let mut was = was.iter().peekable();
    now.iter().map(move |(key, now)| {
        while was.next_if(|(other, _)| *other < key).is_some() {}
        (
            key.as_str(),
            now,
            was.next_if(|(other, _)| *other == key).map(|(_, was)| was),
        )
    })
}

/// Replaces all entries up to `last` by those of `other`.
fn replace_until<V: Copy>(map: &mut BTreeMap<String, V>, other: &BTreeMap<String, V>, last: &str) {
    map.retain(|key, _| key.as_str() > last);
    let until = (Bound::Unbounded, Bound::Included(last));
    map.extend(
        other
            .range::<str, _>(until)
            .map(|(key, value)| (key.clone(), *value)),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(limits: &[(&str, u64)]) -> Snapshot {
        let counts = |total_hits| LimitCounts {
            total_hits,
            ..LimitCounts::default()
        };
        let limits = limits
            .iter()
            .map(|(key, hits)| ((*key).to_owned(), counts(*hits)))
            .collect();
        Snapshot {
            limits,
            ..Snapshot::default()
        }
    }

    fn told(now: &Snapshot, was: &Snapshot) -> Vec<(String, u64)> {
        now.since(was)
            .map(|sample| (sample.place_name(), sample.value))
            .collect()
    }

    impl MetricSample<'_> {
        fn place_name(&self) -> String {
            self.name.to_string().replace(LIMIT_PREFIX, "")
        }
    }

    fn hits(name: &str, value: u64) -> (String, u64) {
        (format!("{name}.total_hits"), value)
    }

    #[test]
    fn counters_are_told_as_their_increase_and_gauges_as_they_are() {
        let mut was = snapshot(&[("a", 1), ("b", 5), ("gone", 3)]);
        was.counters = vec![("c", 2), ("same", 9)];
        was.times[0] = vec![0, 4, 1];
        let mut now = snapshot(&[("a", 1), ("b", 7), ("c", 2), ("d", 0)]);
        now.counters = vec![("c", 5), ("same", 9), ("new", 1)];
        now.gauges = vec![("g", 0)];
        now.times[0] = vec![0, 6, 1];
        let timer = (
            "ratelimit_server.ShouldRateLimit.response_time".to_owned(),
            2,
        );
        let own = [("c", 3), ("new", 1), ("g", 0)].map(|(name, value)| (name.to_owned(), value));
        let expected = [vec![hits("b", 2), hits("c", 2), timer], own.to_vec()].concat();
        assert_eq!(told(&now, &was), expected);
        assert_eq!(
            told(&snapshot(&[("a", 1)]), &snapshot(&[("a", 4)])),
            [],
            "a counter that began again"
        );
    }

    /// A client could write lines of its own, and steer the terminal of whoever read the page.
    #[test]
    fn names_that_clients_chose_end_no_line_of_the_page() {
        let mut snapshot = snapshot(&[("d.k_\u{1b}[2J\u{e9}", 1)]);
        snapshot.unknown_domains = [("a\nforged: 7\r\u{202e}".to_owned(), 3)].into();
        let page = encode(&snapshot);
        assert!(
            page.contains("rate_limit.d.k_\\u{1b}[2J\u{e9}.total_hits: 1\n"),
            "{page}"
        );
        assert!(
            page.contains("rate_limit.a\\nforged: 7\\r\\u{202e}.domain_not_found: 3\n"),
            "{page}"
        );
        assert!(
            !page.contains(|c: char| c.is_control() && c != '\n') && !page.contains("\nforged"),
            "{page}"
        );
    }

    #[test]
    fn what_was_not_told_is_told_the_next_time() {
        let was = || {
            let mut was = snapshot(&[("a", 1), ("c", 1), ("e", 1)]);
            was.counters = vec![("own", 1)];
            was
        };
        let now = || {
            let mut now = snapshot(&[("a", 2), ("b", 2), ("c", 2), ("d", 2)]);
            now.unknown_domains = [("x".to_owned(), 3), ("y".to_owned(), 4)].into();
            now.counters = vec![("own", 6)];
            now
        };
        let x = ("x.domain_not_found".to_owned(), 3);
        let y = ("y.domain_not_found".to_owned(), 4);
        let own = ("own".to_owned(), 5);
        let limits = [hits("a", 1), hits("b", 2), hits("c", 1), hits("d", 2)];
        let all = [&limits[..], &[x.clone(), y.clone(), own.clone()]].concat();
        for (last, expected) in [
            (None, &all[..]),
            (Some(SampleOrder::Limit("a")), &all[1..]),
            (Some(SampleOrder::Limit("b")), &all[2..]),
            (Some(SampleOrder::Limit("d")), &all[4..]),
            (Some(SampleOrder::Domain("x")), &all[5..]),
            (Some(SampleOrder::Domain("y")), &all[6..]),
            (Some(SampleOrder::Server), &[]),
        ] {
            let mut base = was();
            if let Some(last) = last {
                base.copy_until(&now(), last);
            }
            assert_eq!(told(&now(), &base), expected, "{last:?}");
        }
    }
}
