//! Settings as text: the page of the documentation, and the effective values.

use std::collections::HashMap;
use std::fmt::Write as _;

use super::value::VariableKind;
use super::{SECTIONS, Support, Variable, variables};
use crate::settings::read::{environment, process_environment};

/// Text of docs/settings.md above its tables.
const HEAD: &str = "\
# Settings

Every setting is an environment variable, which the server reads once, at start. Names, defaults and syntax are those of
envoyproxy/ratelimit, but a fresh start works: without `REDIS_URL`, counters are in memory and workflows in a file, and
`USE_STATSD` is off. Names that begin with `TIDEGATE_` are Tidegate's own.

Under the name `ratelimit`, as by a link `/bin/ratelimit`, the defaults of envoyproxy/ratelimit hold: `USE_STATSD=true`,
`REDIS_URL=/var/run/nutcracker/ratelimit.sock` unless counters are in memcached, `REDIS_PERSECOND_URL=/var/run/nutcracker/ratelimitpersecond.sock`
with `REDIS_PERSECOND`, and `RUNTIME_ROOT=/srv/runtime_data/current`, which must exist. Workflows are off unless `TIDEGATE_HTTP_ADDR`
is set. Number and timeout of connections to Redis stay as below.

`tidegate settings` prints each setting with its value, or, after a `#`, its default; `tidegate settings --set` only those that
are set, and `tidegate settings --describe NAME` explains one. `tidegate settings` lists all mistakes, and then ends with code 64. An unknown name that begins with `TIDEGATE_` is a mistake; another misspelt name, such as `REDIS_ULR`, is a warning.

A time span is `150ms`, `10s` or `1h30m`, a retention also `7d`. A list is `a,b`, a map `name:value,other:value`. A number,
boolean or time span that is set but empty is a mistake.

The column *support* says what this version does with a setting:

| support | meaning |
|---|---|
| yes | the setting works |
| no | the server refuses to start with another value than the default |
| ignored | another value than the default has no effect, and the server logs a warning |

This page is generated from the table in the source: `make gen` writes it.
";

/// First line of the effective values.
const LEGEND: &str =
    "# A # in front of a variable says that it is not set. The line shows its default.\n";

/// Returns the page docs/settings.md.
#[must_use]
pub fn markdown() -> String {
    let mut page = String::from(HEAD);
    for section in SECTIONS {
        let head = "| variable | type | default | support | what it does |\n|---|---|---|---|---|";
        let _ = writeln!(page, "\n## {}\n\n{head}", section.title);
        for row in section.rows {
            let default = match (row.unset, row.default) {
                (Some(unset), _) => unset.to_owned(),
                (None, "") => String::new(),
                (None, default) => format!("`{default}`"),
            };
            let kind = kind(row.kind);
            let support = support(row.support);
            let _ = writeln!(
                page,
                "| `{}` | {kind} | {default} | {support} | {} |",
                row.name, row.doc
            );
        }
    }
    page
}

/// Returns all variables with their values, one per line, under the headings of their sections.
/// Variables that are not set are commented out. Secrets are masked.
#[must_use]
pub fn effective() -> String {
    lines(&environment())
}

fn lines(given: &HashMap<String, String>) -> String {
    let line = |row: &Variable| match given.get(row.name) {
        Some(text) => set_line(row, text),
        None => match row.unset {
            Some(unset) => format!("# {}: {unset}\n", row.name),
            None => format!("# {}={}\n", row.name, row.default),
        },
    };
    let mut text = LEGEND.to_owned();
    for section in SECTIONS {
        let _ = writeln!(text, "\n## {}", section.title);
        text.extend(section.rows.iter().map(line));
    }
    text
}

/// Returns the variables that are set with their values, under headings that say by what they are
/// set. Secrets are masked.
#[must_use]
pub fn given() -> String {
    set_lines(&process_environment(), &environment())
}

/// `given` is the environment, and `all` has the defaults of the program's name, too.
fn set_lines(given: &HashMap<String, String>, all: &HashMap<String, String>) -> String {
    let mut text = String::new();
    for (heading, is_given) in [
        ("Set in the environment", true),
        ("Set by the name ratelimit", false),
    ] {
        let of_source = |row: &&Variable| given.contains_key(row.name) == is_given;
        let rows = variables().filter(of_source);
        let rows = rows.filter_map(|row| Some(set_line(row, all.get(row.name)?)));
        let rows: String = rows.collect();
        if !rows.is_empty() {
            let _ = write!(text, "## {heading}\n{rows}");
        }
    }
    if text.is_empty() {
        text.push_str("# No setting is set: all have their defaults.\n");
    }
    text
}

fn set_line(row: &Variable, text: &str) -> String {
    format!("{}={}\n", row.name, row.kind.masked(text))
}

pub(super) fn kind(kind: VariableKind) -> String {
    let word = match kind {
        VariableKind::Choice(words) => {
            let words = words.iter().filter(|word| !word.is_empty());
            return words.copied().collect::<Vec<_>>().join(", ");
        }
        VariableKind::Text => "text",
        VariableKind::Path => "path",
        VariableKind::Secret => "secret",
        VariableKind::Url => "address",
        VariableKind::Boolean => "boolean",
        VariableKind::Integer(unit) => unit,
        VariableKind::Bytes => "bytes",
        VariableKind::Float => "number",
        VariableKind::Duration => "time span",
        VariableKind::Retention => "retention",
        VariableKind::List => "list",
        VariableKind::Map | VariableKind::Headers => "map",
    };
    word.to_owned()
}

fn support(support: Support) -> &'static str {
    match support {
        Support::Full => "yes",
        Support::Refused { .. } => "no",
        Support::Warned { .. } => "ignored",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_masked() {
        let given = [
            ("REDIS_AUTH", "hunter2"),
            ("REDIS_URL", "redis://u:hunter2@h:1"),
            ("PORT", "1"),
        ];
        let endpoints = [
            "OTEL_EXPORTER_OTLP_ENDPOINT",
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
            "CONFIG_GRPC_XDS_SERVER_URL",
        ];
        let endpoints = endpoints.map(|name| (name, "http://u:hunter2@h:1"));
        let headers = (
            "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS",
            "authorization=Bearer hunter2",
        );
        let given: Vec<_> = given
            .into_iter()
            .chain(endpoints)
            .chain([headers])
            .collect();
        let text = lines(
            &given
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
        );
        assert!(!text.contains("hunter2"), "{text}");
        assert!(text.contains("\nPORT=1\n"), "{text}");
        assert!(text.contains("\n# DEBUG_PORT=6070\n"), "{text}");
    }

    #[test]
    fn what_is_set_is_shown_with_its_source() {
        let map = |pairs: &[(&str, &str)]| {
            let pairs = pairs.iter();
            pairs
                .map(|&(name, value)| (name.to_owned(), value.to_owned()))
                .collect::<HashMap<_, _>>()
        };
        let given = [("REDIS_AUTH", "hunter2"), ("PORT", "1"), ("HOME", "/")];
        let all = [&given[..], &[("USE_STATSD", "true")]].concat();
        assert_eq!(
            set_lines(&map(&given), &map(&all)),
            "## Set in the environment\nPORT=1\nREDIS_AUTH=*****\n## Set by the name ratelimit\nUSE_STATSD=true\n"
        );
        let none = map(&given[2..]);
        assert!(set_lines(&none, &none).starts_with("# No setting is set"));
    }

    #[test]
    fn settings_stand_under_the_headings_of_the_documentation() {
        let text = lines(&HashMap::new());
        let headings = text.lines().filter_map(|line| line.strip_prefix("## "));
        assert!(headings.eq(SECTIONS.iter().map(|section| section.title)));
        assert!(text.contains("\n\n## Workflows\n# TIDEGATE_HTTP_ADDR=127.0.0.1:7070\n"));
    }

    #[test]
    fn what_happens_without_a_value_is_shown_as_the_default() {
        let text = lines(&HashMap::new());
        assert!(
            text.starts_with(LEGEND) && text.contains("\n# REDIS_POOL_SIZE: 4 for each core\n"),
            "{text}"
        );
        assert!(
            markdown().contains(
                "| `REDIS_TIMEOUT` | time span | 1s for a connection, 10s for an answer |"
            )
        );
    }
}
