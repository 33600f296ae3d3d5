//! Writer of lines for StatsD and DogStatsD.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};
use std::io::Write as _;

use regex_lite::Captures;

use crate::settings::{Dialect, Mogrifier};
use crate::telemetry::metrics::dotted::{Kind, Place, Sample};

/// Prefix of each tag in a name.
const TAG: &str = ".__";
/// Limit of calls per line of a timer, while there are few calls. Receivers expand each line into
/// its calls.
const WEIGHT: u64 = 1_000;
/// Limit of lines for the calls of one response time class.
const LINES: u64 = 1_000;

/// Writes lines in one dialect, with the tags of the settings.
pub(super) struct Writer {
    dialect: Dialect,
    tags: BTreeMap<String, String>,
    /// Tags in the form that ends a line, for samples without their own tags.
    end: String,
    /// Buffer for the name of the current line.
    name: String,
}

impl Writer {
    /// Creates a writer with these tags on every line. As in the reference, a tag without a name or
    /// a value is omitted.
    pub(super) fn new(dialect: &Dialect, tags: &[(String, String)]) -> Self {
        let tags = tags
            .iter()
            .filter(|(name, value)| !name.is_empty() && !value.is_empty());
        let tags: BTreeMap<_, _> = tags
            .map(|(name, value)| (clean(name, ","), clean(value, ".,")))
            .collect();
        let end = match dialect {
            Dialect::Statsd => tags
                .iter()
                .map(|(name, value)| format!("{TAG}{name}={value}"))
                .collect(),
            Dialect::Dog(_) => listed(&tags),
        };
        Self {
            dialect: dialect.clone(),
            tags,
            end,
            name: String::new(),
        }
    }

    /// Tags in the form of DogStatsD, to append to a value.
    pub(super) fn tags(&self) -> &str {
        &self.end
    }

    /// Appends the lines of a sample.
    pub(super) fn write(&mut self, sample: &Sample<'_>, out: &mut Vec<u8>) {
        let mut name = std::mem::take(&mut self.name);
        name.clear();
        let _ = write!(Cleaned(&mut name), "{}", sample.name);
        // Only names of the server may contain tags: a client must not add tags by the name of a
        // descriptor.
        let tagged = if sample.place == Place::Own {
            name.find(TAG)
        } else {
            None
        };
        match &self.dialect {
            Dialect::Statsd if tagged.is_none() => {
                name.push_str(&self.end);
                values(sample, &name, "", out);
            }
            Dialect::Statsd => {
                let (name, tags) = self.split(&name, tagged);
                let tags: String = tags
                    .iter()
                    .map(|(tag, value)| format!("{TAG}{tag}={value}"))
                    .collect();
                values(sample, &format!("{name}{tags}"), "", out);
            }
            Dialect::Dog(rules) => {
                let (name, tags) = match tagged {
                    None => (name.as_str(), self.end.clone()),
                    tagged => {
                        let (name, tags) = self.split(&name, tagged);
                        (name, listed(&tags))
                    }
                };
                match mogrified(rules, name) {
                    Some((name, more)) => values(sample, &name, &with_more(tags, &more), out),
                    None => values(sample, name, &tags, out),
                }
            }
        }
        self.name = name;
    }

    /// Separates a name from the tags in it, and merges these with the tags of every line.
    fn split<'n>(&self, name: &'n str, at: Option<usize>) -> (&'n str, BTreeMap<String, String>) {
        let (name, own) = name.split_at(at.unwrap_or(name.len()));
        let pairs = own.split(TAG).filter_map(|pair| pair.split_once('='));
        let own = pairs.map(|(tag, value)| (tag.to_owned(), value.to_owned()));
        (name, self.tags.clone().into_iter().chain(own).collect())
    }
}

/// Appends a line for a counter or a gauge, and one or more for a timer.
fn values(sample: &Sample<'_>, name: &str, tags: &str, out: &mut Vec<u8>) {
    // A write into memory does not fail.
    let mut line = |value: &dyn Display, end: &dyn Display| {
        let _ = writeln!(out, "{name}:{value}|{end}{tags}");
    };
    match sample.kind {
        Kind::Counter => line(&sample.value, &"c"),
        Kind::Gauge => line(&sample.value, &"g"),
        Kind::Timer { micros } => {
            let time = micros as f64 / 1_000.0;
            let most = WEIGHT.max(sample.value.div_ceil(LINES));
            for _ in 0..sample.value / most {
                line(&time, &format_args!("ms|@{}", rate(most)));
            }
            match sample.value % most {
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

/// New name and tags by the first rule that matches.
fn mogrified(rules: &[Mogrifier], name: &str) -> Option<(String, Vec<(String, String)>)> {
    rules.iter().find_map(|rule| {
        let groups = rule.pattern.captures(name)?;
        let tags = rule
            .tags
            .iter()
            .map(|(tag, value)| (clean(tag, ","), clean(&filled(value, &groups), ",")));
        Some((clean(&filled(&rule.name, &groups), ""), tags.collect()))
    })
}

/// `template` with `$n` replaced by the match of group n. The number of an unknown group stays as
/// it is.
fn filled(template: &str, groups: &Captures<'_>) -> String {
    let mut parts = template.split('$');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        let (number, rest) = part.split_at(digits);
        match number.parse::<usize>() {
            Ok(number) if number < groups.len() => {
                out.push_str(groups.get(number).map_or("", |group| group.as_str()))
            }
            _ => {
                out.push('$');
                out.push_str(number);
            }
        }
        out.push_str(rest);
    }
    out
}

/// Tags in the form `|#a:b,c:d`. Empty without tags.
fn listed(tags: &BTreeMap<String, String>) -> String {
    let pairs: Vec<_> = tags
        .iter()
        .map(|(tag, value)| format!("{tag}:{value}"))
        .collect();
    if pairs.is_empty() {
        String::new()
    } else {
        format!("|#{}", pairs.join(","))
    }
}

fn with_more(mut tags: String, more: &[(String, String)]) -> String {
    for (tag, value) in more {
        let before = if tags.is_empty() { "|#" } else { "," };
        let _ = write!(tags, "{before}{tag}:{value}");
    }
    tags
}

/// `text` without characters that would end a name, a tag or a line, and without those in `more`.
fn clean(text: &str, more: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let _ = Cleaned(&mut out).write_str(text);
    out.replace(|c| more.contains(c), "_")
}

/// Writer that replaces characters that would end a name or a line, since clients choose names.
struct Cleaned<'o>(&'o mut String);

impl std::fmt::Write for Cleaned<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.extend(text.chars().map(|c| {
            if c.is_control() || c == ':' || c == '|' {
                '_'
            } else {
                c
            }
        }));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::metrics::dotted::Name;

    fn written(
        writer: &mut Writer,
        name: &str,
        place: Place<'_>,
        kind: Kind,
        value: u64,
    ) -> String {
        let mut out = Vec::new();
        writer.write(
            &Sample {
                name: Name("".into(), name, ""),
                kind,
                value,
                place,
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
        let mut plain = Writer::new(&Dialect::Statsd, &tags);
        let mut dog = Writer::new(&Dialect::Dog(Vec::new()), &tags);
        for (name, place, kind, by_statsd, by_dog) in [
            (
                "a.b",
                Place::Own,
                Kind::Counter,
                "a.b.__app=x.__zone=eu_1_a_b:3|c\n",
                "a.b:3|c|#app:x,zone:eu_1_a_b\n",
            ),
            (
                "a",
                Place::Own,
                Kind::Gauge,
                "a.__app=x.__zone=eu_1_a_b:3|g\n",
                "a:3|g|#app:x,zone:eu_1_a_b\n",
            ),
            (
                "m.__code=hit",
                Place::Own,
                Kind::Counter,
                "m.__app=x.__code=hit.__zone=eu_1_a_b:3|c\n",
                "m:3|c|#app:x,code:hit,zone:eu_1_a_b\n",
            ),
            (
                "d.__role=admin",
                Place::Limit("d"),
                Kind::Counter,
                "d.__role=admin.__app=x.__zone=eu_1_a_b:3|c\n",
                "d.__role=admin:3|c|#app:x,zone:eu_1_a_b\n",
            ),
            (
                "d.\u{e9}\n:1|c\r\u{7f}",
                Place::Limit("d"),
                Kind::Counter,
                "d.\u{e9}__1_c__.__app=x.__zone=eu_1_a_b:3|c\n",
                "d.\u{e9}__1_c__:3|c|#app:x,zone:eu_1_a_b\n",
            ),
        ] {
            assert_eq!(written(&mut plain, name, place, kind, 3), by_statsd);
            assert_eq!(written(&mut dog, name, place, kind, 3), by_dog);
        }
        for dialect in [Dialect::Statsd, Dialect::Dog(Vec::new())] {
            let mut writer = Writer::new(&dialect, &[]);
            let line = written(&mut writer, "a", Place::Own, Kind::Gauge, 0);
            assert_eq!(line, "a:0|g\n");
        }
    }

    #[test]
    fn the_weights_of_a_timer_add_up_to_its_calls() {
        let mut writer = Writer::new(&Dialect::Statsd, &[]);
        for calls in (1..3_000).chain([999_999, 1_000_000, 1_000_001, 123_456_789]) {
            let text = written(
                &mut writer,
                "t",
                Place::Own,
                Kind::Timer { micros: 7_000 },
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
            assert!(text.lines().count() as u64 <= LINES + 1, "{calls}");
        }
    }

    /// A decision was `0|ms`, and three were `0|ms|@0.33333333299999995`.
    #[test]
    fn times_have_fractions_and_rates_few_digits() {
        let mut writer = Writer::new(&Dialect::Statsd, &[]);
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
                written(&mut writer, "t", Place::Own, Kind::Timer { micros }, calls),
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
        let mut writer = Writer::new(&Dialect::Dog(rules), &pairs(&[("app", "x")]));
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
                written(&mut writer, name, Place::Limit("k"), Kind::Counter, 1),
                expected
            );
        }
    }
}
