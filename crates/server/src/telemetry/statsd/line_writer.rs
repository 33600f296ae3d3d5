//! Writer of lines for StatsD and DogStatsD.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::Write as _;

use regex_lite::Captures;

use crate::settings::{Dialect, Mogrifier};
use crate::telemetry::metrics::dotted::{MetricSample, SampleKind, SampleOrder};

/// Prefix of each tag in a name.
const TAG_PREFIX: &str = ".__";
/// Limit of calls per line of a timer, while there are few calls. Receivers expand each line into
/// its calls.
const MAX_CALLS_PER_LINE: u64 = 1_000;
/// Limit of lines for the calls of one response time class.
const MAX_LINES: u64 = 1_000;

/// Writes lines in one dialect, with the tags of the settings.
pub(super) struct LineWriter {
    dialect: Dialect,
    tags: BTreeMap<String, String>,
    /// Tags in the form that ends a line, for samples without their own tags.
    line_end: String,
}

impl LineWriter {
    /// Creates a writer with these tags on every line. As in the reference, a tag without a name or
    /// a value is omitted.
    pub(super) fn new(dialect: &Dialect, tags: &[(String, String)]) -> Self {
        let tags = tags
            .iter()
            .filter(|(name, value)| !name.is_empty() && !value.is_empty());
        let tags: BTreeMap<_, _> = tags
            .map(|(name, value)| (sanitize(name, ","), sanitize(value, ".,")))
            .collect();
        Self {
            dialect: dialect.clone(),
            line_end: join_tags(dialect, &tags),
            tags,
        }
    }

    /// Tags in the form of DogStatsD, to append to a value.
    pub(super) fn tags(&self) -> &str {
        &self.line_end
    }

    /// Appends the lines of a sample.
    pub(super) fn write(&self, sample: &MetricSample<'_>, out: &mut Vec<u8>) {
        let name = sanitize(&sample.name.to_string(), "");
        // Only names of the server may contain tags: a client must not add tags by the name of a
        // descriptor.
        let tagged = name
            .find(TAG_PREFIX)
            .filter(|_| sample.order == SampleOrder::Server);
        let (name, tags) = match tagged {
            None => (&*name, Cow::Borrowed(&*self.line_end)),
            Some(at) => {
                let (name, own) = name.split_at(at);
                let mut tags = self.tags.clone();
                let own = own.split(TAG_PREFIX).filter_map(|tag| tag.split_once('='));
                tags.extend(own.map(|(tag, value)| (tag.to_owned(), value.to_owned())));
                (name, Cow::Owned(join_tags(&self.dialect, &tags)))
            }
        };
        match &self.dialect {
            Dialect::Statsd => write_values(sample, [name, &tags], "", out),
            Dialect::Dog(rules) => match apply_mogrifiers(rules, name, &tags) {
                Some((name, tags)) => write_values(sample, [&name, ""], &tags, out),
                None => write_values(sample, [name, ""], &tags, out),
            },
        }
    }
}

/// Appends a line for a counter or a gauge, and one or more for a timer. The name has two parts.
fn write_values(sample: &MetricSample<'_>, name: [&str; 2], tags: &str, out: &mut Vec<u8>) {
    let [name, rest] = name;
    // A write into memory does not fail.
    let mut line = |value: &dyn Display, end: &dyn Display| {
        let _ = writeln!(out, "{name}{rest}:{value}|{end}{tags}");
    };
    match sample.kind {
        SampleKind::Counter => line(&sample.value, &"c"),
        SampleKind::Gauge => line(&sample.value, &"g"),
        SampleKind::Timer { micros } => {
            let time = micros as f64 / 1_000.0;
            let calls_per_line = MAX_CALLS_PER_LINE.max(sample.value.div_ceil(MAX_LINES));
            for _ in 0..sample.value / calls_per_line {
                line(&time, &format_args!("ms|@{}", rate(calls_per_line)));
            }
            match sample.value % calls_per_line {
                0 => {}
                1 => line(&time, &"ms"),
                rest => line(&time, &format_args!("ms|@{}", rate(rest))),
            }
        }
    }
}

/// Sample rate of a line that stands for `calls` calls. It has just enough digits: receivers that
/// truncate `1 / rate` get the exact number, and others at most a ten-thousandth more.
fn rate(calls: u64) -> f64 {
    let digits = calls.max(1).ilog10() as i32 + 1;
    let places = 10_f64.powi((digits + 4).max(2 * digits + 1));
    (places / calls as f64).floor() / places
}

/// New name, and `tags` with further ones, by the first rule that matches.
fn apply_mogrifiers(rules: &[Mogrifier], name: &str, tags: &str) -> Option<(String, String)> {
    rules.iter().find_map(|rule| {
        let groups = rule.pattern.captures(name)?;
        let mut tags = tags.to_owned();
        for (tag, value) in &rule.tags {
            let value = fill_template(value, &groups);
            push_dog_tag(&mut tags, &sanitize(tag, ","), &sanitize(&value, ","));
        }
        Some((sanitize(&fill_template(&rule.name, &groups), ""), tags))
    })
}

/// `template` with `$n` replaced by the match of group n. The number of an unknown group stays as
/// it is.
fn fill_template(template: &str, groups: &Captures<'_>) -> String {
    let mut parts = template.split('$');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        let (number, rest) = part.split_at(digits);
        match number.parse() {
            Ok(number) if number < groups.len() => {
                out += groups.get(number).map_or("", |group| group.as_str());
                out += rest;
            }
            _ => out += &format!("${part}"),
        }
    }
    out
}

/// Tags in the form of the dialect: `.__a=b.__c=d`, or `|#a:b,c:d`. Empty without tags.
fn join_tags(dialect: &Dialect, tags: &BTreeMap<String, String>) -> String {
    let mut text = String::new();
    for (tag, value) in tags {
        match dialect {
            Dialect::Statsd => text += &format!("{TAG_PREFIX}{tag}={value}"),
            Dialect::Dog(_) => push_dog_tag(&mut text, tag, value),
        }
    }
    text
}

fn push_dog_tag(tags: &mut String, tag: &str, value: &str) {
    let before = if tags.is_empty() { "|#" } else { "," };
    *tags += &format!("{before}{tag}:{value}");
}

/// `text` with `_` for characters that would end a name, a tag or a line, and for those in `more`.
/// Clients choose names.
fn sanitize(text: &str, more: &str) -> String {
    text.replace(
        |c: char| c.is_control() || c == ':' || c == '|' || more.contains(c),
        "_",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::metrics::dotted::SampleName;

    fn written(
        writer: &mut LineWriter,
        name: &str,
        place: SampleOrder<'_>,
        kind: SampleKind,
        value: u64,
    ) -> String {
        let mut out = Vec::new();
        writer.write(
            &MetricSample {
                name: SampleName("".into(), name, ""),
                kind,
                value,
                order: place,
            },
            &mut out,
        );
        String::from_utf8(out).unwrap()
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs
            .iter()
            .map(|&(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    }

    fn rule(pattern: &str, name: &str, tags: &[(&str, &str)]) -> Mogrifier {
        Mogrifier {
            pattern: regex_lite::Regex::new(pattern).unwrap(),
            name: name.to_owned(),
            tags: pairs(tags),
        }
    }

    #[test]
    fn tags_are_a_part_of_the_name_for_statsd_and_follow_the_value_for_dogstatsd() {
        let tags = pairs(&[
            ("zone", "eu.1:a|b"),
            ("app", "x"),
            ("none", ""),
            ("", "none"),
        ]);
        let mut plain = LineWriter::new(&Dialect::Statsd, &tags);
        let mut dog = LineWriter::new(&Dialect::Dog(Vec::new()), &tags);
        for (name, place, kind, by_statsd, by_dog) in [
            (
                "a.b",
                SampleOrder::Server,
                SampleKind::Counter,
                "a.b.__app=x.__zone=eu_1_a_b:3|c\n",
                "a.b:3|c|#app:x,zone:eu_1_a_b\n",
            ),
            (
                "a",
                SampleOrder::Server,
                SampleKind::Gauge,
                "a.__app=x.__zone=eu_1_a_b:3|g\n",
                "a:3|g|#app:x,zone:eu_1_a_b\n",
            ),
            (
                "m.__code=hit",
                SampleOrder::Server,
                SampleKind::Counter,
                "m.__app=x.__code=hit.__zone=eu_1_a_b:3|c\n",
                "m:3|c|#app:x,code:hit,zone:eu_1_a_b\n",
            ),
            (
                "d.__role=admin",
                SampleOrder::Limit("d"),
                SampleKind::Counter,
                "d.__role=admin.__app=x.__zone=eu_1_a_b:3|c\n",
                "d.__role=admin:3|c|#app:x,zone:eu_1_a_b\n",
            ),
            (
                "d.\u{e9}\n:1|c\r\u{7f}",
                SampleOrder::Limit("d"),
                SampleKind::Counter,
                "d.\u{e9}__1_c__.__app=x.__zone=eu_1_a_b:3|c\n",
                "d.\u{e9}__1_c__:3|c|#app:x,zone:eu_1_a_b\n",
            ),
        ] {
            assert_eq!(written(&mut plain, name, place, kind, 3), by_statsd);
            assert_eq!(written(&mut dog, name, place, kind, 3), by_dog);
        }
        for dialect in [Dialect::Statsd, Dialect::Dog(Vec::new())] {
            let mut writer = LineWriter::new(&dialect, &[]);
            let line = written(&mut writer, "a", SampleOrder::Server, SampleKind::Gauge, 0);
            assert_eq!(line, "a:0|g\n");
        }
    }

    #[test]
    fn the_weights_of_a_timer_add_up_to_its_calls() {
        let mut writer = LineWriter::new(&Dialect::Statsd, &[]);
        for calls in (1..3_000).chain([999_999, 1_000_000, 1_000_001, 123_456_789]) {
            let text = written(
                &mut writer,
                "t",
                SampleOrder::Server,
                SampleKind::Timer { micros: 7_000 },
                calls,
            );
            let mut cut = 0;
            let mut exact = 0.0;
            for line in text.lines() {
                let rate = match line
                    .strip_prefix("t:7|ms")
                    .map(|rest| rest.strip_prefix("|@"))
                {
                    Some(Some(rate)) => rate.parse::<f64>().unwrap(),
                    Some(None) => 1.0,
                    None => panic!("{line}"),
                };
                cut += (1.0 / rate) as u64;
                exact += 1.0 / rate;
            }
            assert_eq!(cut, calls);
            assert!(
                (exact - calls as f64).abs() <= calls as f64 / 1e4,
                "{calls}: {exact}"
            );
            assert!(text.lines().count() as u64 <= MAX_LINES + 1, "{calls}");
        }
    }

    /// A decision was `0|ms`, and three were `0|ms|@0.33333333299999995`.
    #[test]
    fn times_have_fractions_and_rates_few_digits() {
        let mut writer = LineWriter::new(&Dialect::Statsd, &[]);
        for (micros, calls, expected) in [
            (0, 1, "t:0|ms\n"),
            (183, 1, "t:0.183|ms\n"),
            (7, 3, "t:0.007|ms|@0.33333\n"),
            (1_250, 2, "t:1.25|ms|@0.5\n"),
            (12_300, 10, "t:12.3|ms|@0.1\n"),
            (40_000, 7, "t:40|ms|@0.14285\n"),
            (104_000, 1_000, "t:104|ms|@0.001\n"),
        ] {
            assert_eq!(
                written(
                    &mut writer,
                    "t",
                    SampleOrder::Server,
                    SampleKind::Timer { micros },
                    calls
                ),
                expected
            );
        }
    }

    #[test]
    fn the_first_rule_that_matches_makes_the_name_and_its_tags() {
        let rules = vec![
            rule(
                r"^limit\.(\w+)\.([^.]+)\.hits$",
                "hits.$1",
                &[
                    ("key", "$2"),
                    ("all", "$0"),
                    ("not", "$3$"),
                    ("two", "$1-$2"),
                ],
            ),
            rule("^limit", "never", &[]),
            rule("^(x)?gone$", "g$1", &[]),
        ];
        let mut writer = LineWriter::new(&Dialect::Dog(rules), &pairs(&[("app", "x")]));
        for (name, expected) in [
            (
                "limit.shop.a,b.hits",
                "hits.shop:1|c|#app:x,key:a_b,all:limit.shop.a_b.hits,not:$3$,two:shop-a_b\n",
            ),
            ("limit.shop", "never:1|c|#app:x\n"),
            ("gone", "g:1|c|#app:x\n"),
            ("other", "other:1|c|#app:x\n"),
        ] {
            assert_eq!(
                written(
                    &mut writer,
                    name,
                    SampleOrder::Limit("k"),
                    SampleKind::Counter,
                    1
                ),
                expected
            );
        }
    }
}
