//! Types of variables, and the parser of each.

mod go;
mod mask;

pub(crate) use go::boolean as go_boolean;
pub(crate) use mask::mask_urls;

use std::time::Duration;

use tidegate_workflow::{Retention, RetentionDefaults};

use tidegate_api::duration_text;

/// The type of a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VariableKind {
    /// Any text.
    Text,
    /// Path of a file or folder.
    Path,
    /// A text that is never printed.
    Secret,
    /// Addresses whose passwords are never printed.
    Url,
    /// One of these words, in upper or lower case.
    Choice(&'static [&'static str]),
    /// True or false.
    Boolean,
    /// A whole number, with the name of its unit.
    Integer(&'static str),
    /// A number of bytes, such as 512k or 128M.
    Bytes,
    /// A number.
    Float,
    /// A time span.
    Duration,
    /// Retention time of workflows.
    Retention,
    /// Words separated by commas.
    List,
    /// `key:value` pairs separated by commas.
    Map,
    /// Pairs like those of [`VariableKind::Map`], which are never printed.
    Headers,
}

/// Parsed value of a variable.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum SettingValue {
    /// For [`VariableKind::Text`], [`VariableKind::Path`], [`VariableKind::Secret`] and
    /// [`VariableKind::Url`]; for [`VariableKind::Choice`] in the spelling of the list.
    Text(String),
    /// For [`VariableKind::Boolean`].
    Boolean(bool),
    /// For [`VariableKind::Integer`] and [`VariableKind::Bytes`].
    Integer(i64),
    /// For [`VariableKind::Float`].
    Float(f64),
    /// For [`VariableKind::Duration`].
    Duration(Duration),
    /// For [`VariableKind::Retention`].
    Retention(RetentionDefaults),
    /// For [`VariableKind::List`].
    List(Vec<String>),
    /// For [`VariableKind::Map`] and [`VariableKind::Headers`].
    Map(Vec<(String, String)>),
}

impl VariableKind {
    /// Parses `text`. None if it is not of this kind.
    ///
    /// An empty text is a mistake for numbers, booleans and durations: an unset variable has its
    /// default instead.
    pub(crate) fn read(self, text: &str) -> Option<SettingValue> {
        match self {
            Self::Text | Self::Path | Self::Secret | Self::Url => {
                Some(SettingValue::Text(text.into()))
            }
            Self::Choice(words) => {
                let word = words.iter().find(|word| word.eq_ignore_ascii_case(text))?;
                Some(SettingValue::Text((*word).to_owned()))
            }
            Self::Boolean => go::boolean(text).map(SettingValue::Boolean),
            Self::Integer(_) => go::integer(text).map(SettingValue::Integer),
            Self::Bytes => bytes(text).map(SettingValue::Integer),
            Self::Float => text
                .parse()
                .ok()
                .filter(|number: &f64| number.is_finite())
                .map(SettingValue::Float),
            Self::Duration => go::duration(text).map(SettingValue::Duration),
            Self::Retention => retention(text).map(SettingValue::Retention),
            Self::List => Some(SettingValue::List(items(text).map(str::to_owned).collect())),
            Self::Map | Self::Headers => items(text)
                .map(pair)
                .collect::<Option<Vec<_>>>()
                .map(SettingValue::Map),
        }
    }

    /// Completes "expected ..".
    pub(crate) fn expected(self) -> String {
        let expected = match self {
            Self::Choice(words) => {
                let shown = |word: &&'static str| if word.is_empty() { "nothing" } else { *word };
                let words: Vec<_> = words.iter().map(shown).collect();
                return format!("one of {}", words.join(", "));
            }
            Self::Integer(unit) => return format!("a whole number ({unit})"),
            Self::Text | Self::Secret => "a text",
            Self::Path => "a path",
            Self::Url => "an address",
            Self::Boolean => "true or false",
            Self::Bytes => "a number of bytes such as 4096, 512k, 128M or 2G",
            Self::Float => "a number such as 0.8",
            Self::Duration => "a time span such as 150ms, 10s or 1h30m",
            Self::Retention => "a time span such as 7d, forever, or succeeded=7d,failed=30d",
            Self::List => "words separated by commas",
            Self::Map | Self::Headers => "pairs such as name:value,other:value",
        };
        expected.to_owned()
    }

    /// `text` in a form that is safe for people and logs.
    pub(crate) fn masked(self, text: &str) -> String {
        match self {
            // Names of headers are masked, too: if the syntax is wrong, or a value has a comma,
            // they may be parts of values.
            Self::Secret | Self::Headers if !text.is_empty() => "*****".to_owned(),
            Self::Url => mask_urls(text),
            // Host names are masked, too, since an operator may give an address with a password.
            Self::Text | Self::List if text.contains('@') => mask_urls(text),
            _ => text.to_owned(),
        }
    }
}

/// A number of bytes, in the largest unit that divides it.
pub(crate) fn with_unit(bytes: i64) -> String {
    let units = [("G", 1 << 30), ("M", 1 << 20), ("k", 1 << 10), ("", 1)];
    let fits = |(_, size): &(&str, i64)| bytes != 0 && bytes % size == 0;
    let (unit, size) = units.into_iter().find(fits).unwrap_or(("", 1));
    format!("{}{unit}", bytes / size)
}

/// Parses a number of bytes with an optional unit, a power of 1024: `k` or `KiB`, `M` or `MiB`, `G`
/// or `GiB`.
fn bytes(text: &str) -> Option<i64> {
    let Some(start) = text.find(['k', 'K', 'm', 'M', 'g', 'G']) else {
        return go::integer(text);
    };
    let (number, unit) = text.split_at(start);
    let factor = match unit.to_ascii_lowercase().as_str() {
        "k" | "ki" | "kib" => 1 << 10,
        "m" | "mi" | "mib" => 1 << 20,
        "g" | "gi" | "gib" => 1 << 30,
        _ => return None,
    };
    go::integer(number)?.checked_mul(factor)
}

/// Parses one duration for all workflows, or one for each outcome.
fn retention(text: &str) -> Option<RetentionDefaults> {
    if let Some(all) = duration_text::retention(text) {
        return Some(RetentionDefaults {
            succeeded: all,
            failed: all,
        });
    }
    let mut defaults = RetentionDefaults::default();
    for item in text.split(',') {
        let (which, text) = item.split_once('=')?;
        let retention: Retention = duration_text::retention(text.trim())?;
        match which.trim() {
            "succeeded" => defaults.succeeded = retention,
            "failed" => defaults.failed = retention,
            _ => return None,
        }
    }
    Some(defaults)
}

fn items(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').filter(move |_| !text.trim().is_empty())
}

fn pair(item: &str) -> Option<(String, String)> {
    let (key, value) = item.split_once(':')?;
    (!value.contains(':')).then(|| (key.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(kind: VariableKind, text: &str, expected: Option<SettingValue>) {
        assert_eq!(kind.read(text), expected, "{kind:?} {text:?}");
    }

    #[test]
    fn values_are_read_as_the_reference_reads_them() {
        let number = VariableKind::Integer("things");
        for (text, value) in [
            ("12", 12),
            ("-3", -3),
            ("+4", 4),
            ("0x1F", 31),
            ("0b101", 5),
            ("0o17", 15),
            ("017", 15),
            ("1_000", 1000),
        ] {
            check(number, text, Some(SettingValue::Integer(value)));
        }
        for text in ["", " 1", "1.5", "ten", "0x", "--1", "9223372036854775808"] {
            check(number, text, None);
        }
        for (text, value) in [
            ("1", true),
            ("T", true),
            ("True", true),
            ("0", false),
            ("FALSE", false),
        ] {
            check(
                VariableKind::Boolean,
                text,
                Some(SettingValue::Boolean(value)),
            );
        }
        for text in ["", "yes", "on", "tRUE", "2"] {
            check(VariableKind::Boolean, text, None);
        }
        check(VariableKind::Float, "0.8", Some(SettingValue::Float(0.8)));
        check(VariableKind::Float, "NaN", None);
        check(
            VariableKind::Choice(&["FILE", "XDS"]),
            "file",
            Some(SettingValue::Text("FILE".into())),
        );
        check(VariableKind::Choice(&["FILE", "XDS"]), "dir", None);
    }

    #[test]
    fn bytes_have_units() {
        for (text, value) in [
            ("0", 0),
            ("4096", 4096),
            ("0x10", 16),
            ("512k", 512 << 10),
            ("1K", 1 << 10),
            ("128M", 128 << 20),
            ("128m", 128 << 20),
            ("128Mi", 128 << 20),
            ("3MiB", 3 << 20),
            ("2G", 2 << 30),
            ("-1k", -1024),
        ] {
            check(
                VariableKind::Bytes,
                text,
                Some(SettingValue::Integer(value)),
            );
        }
        for text in ["", "M", "1.5M", "1 M", "1MB", "1T", "1kk", "9999999999G"] {
            check(VariableKind::Bytes, text, None);
        }
    }

    #[test]
    fn durations_are_go_durations() {
        for (text, nanoseconds) in [
            ("0", 0),
            ("10s", 10_000_000_000),
            ("150us", 150_000),
            ("150µs", 150_000),
            ("1h30m", 5_400_000_000_000),
            ("1.5s", 1_500_000_000),
            (".5s", 500_000_000),
            ("+0", 0),
            ("1.5h30m", 7_200_000_000_000),
            ("30m1h", 5_400_000_000_000),
            ("2ms3ns", 2_000_003),
        ] {
            check(
                VariableKind::Duration,
                text,
                Some(SettingValue::Duration(Duration::from_nanos(nanoseconds))),
            );
        }
        for text in [
            "",
            "5",
            "-1s",
            "s",
            "1 s",
            "1d",
            "1s2",
            "999999999h",
            "1..5s",
            "5 seconds",
            "1s ago",
        ] {
            check(VariableKind::Duration, text, None);
        }
    }

    #[test]
    fn retention_is_for_all_or_for_each() {
        const DAY: Duration = Duration::from_secs(86_400);
        let check_retention = |text: &str, succeeded, failed| {
            check(
                VariableKind::Retention,
                text,
                Some(SettingValue::Retention(RetentionDefaults {
                    succeeded,
                    failed,
                })),
            );
        };
        check_retention("7d", Retention::For(7 * DAY), Retention::For(7 * DAY));
        check_retention("forever", Retention::Forever, Retention::Forever);
        check_retention(
            "failed=forever,succeeded=1h",
            Retention::For(DAY / 24),
            Retention::Forever,
        );
        check_retention(
            "succeeded=0s",
            Retention::For(Duration::ZERO),
            Retention::For(30 * DAY),
        );
        for text in ["", "never", "failed", "failed=", "cancelled=1d", "1d,2d"] {
            check(VariableKind::Retention, text, None);
        }
    }

    #[test]
    fn lists_and_maps_split_at_commas() {
        check(VariableKind::List, "", Some(SettingValue::List(vec![])));
        check(
            VariableKind::List,
            "a,b",
            Some(SettingValue::List(vec!["a".into(), "b".into()])),
        );
        check(
            VariableKind::Map,
            "a:b,c:",
            Some(SettingValue::Map(vec![
                ("a".into(), "b".into()),
                ("c".into(), String::new()),
            ])),
        );
        for text in ["a", "a:b:c", "a:b,"] {
            check(VariableKind::Map, text, None);
        }
    }

    #[test]
    fn passwords_are_not_shown() {
        assert_eq!(
            VariableKind::Url.masked("redis://user:pw@host:1/2"),
            "redis://*****@host:1/2"
        );
        assert_eq!(
            VariableKind::List.masked("memcached://u:hunter2@host:1,b:2"),
            "*****,b:2"
        );
        assert_eq!(VariableKind::Secret.masked("hunter2"), "*****");
        for text in [
            "a:hunter2",
            "authorization=Bearer hunter2",
            "hunter2",
            "a:b,hunter2",
            "a:b,hunter2:c",
        ] {
            assert_eq!(VariableKind::Headers.masked(text), "*****");
        }
        assert_eq!(VariableKind::Secret.masked(""), "");
    }
}
