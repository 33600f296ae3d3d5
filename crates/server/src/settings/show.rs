//! Settings as text: the page of the documentation, and the values in force.

use std::collections::HashMap;
use std::fmt::Write as _;

use super::table::{SECTIONS, Support, Variable, variables};
use super::value::Kind;

/// The page docs/settings.md.
#[must_use]
pub fn markdown() -> String {
    let mut page = String::from(
        "# Settings\n\n\
         Every setting is an environment variable, read once at start. Names, defaults and syntax are those of\n\
         envoyproxy/ratelimit, but for two defaults that let a fresh start work: without `REDIS_URL` counters are kept in\n\
         memory and workflows in a file, and `USE_STATSD` is off unless set. Names that start with `TIDEGATE_` are our own.\n\n\
         All mistakes are reported at once, and the process ends with code 64. `tidegate settings` prints the values in\n\
         force. This page is written by `make gen` from the table that the server reads.\n\n\
         A time span is written as `150ms`, `10s` or `1h30m`, and where a retention is asked for also as `7d`; a list as `a,b`; a map as `name:value,other:value`. A number,\n\
         boolean or time span that is set but empty is a mistake.\n\n\
         Support: *yes*; *no* means that other values than the default stop the start; *ignored* means that other values\n\
         are logged and have no effect; *later* belongs to something this version lacks, and is only checked for its syntax.\n",
    );
    for section in SECTIONS {
        let _ = write!(
            page,
            "\n## {}\n\n| variable | type | default | support | |\n|---|---|---|---|---|\n",
            section.title
        );
        for row in section.rows {
            let default = if row.default.is_empty() { String::new() } else { format!("`{}`", row.default) };
            let _ = writeln!(
                page,
                "| `{}` | {} | {default} | {} | {} |",
                row.name,
                kind(row.kind),
                support(row.support),
                row.doc
            );
        }
    }
    page
}

/// Every variable with its value, one a line; those that are not set are commented out. Secrets are masked.
#[must_use]
pub fn effective() -> String {
    lines(&super::environment())
}

fn lines(given: &HashMap<String, String>) -> String {
    let line = |row: &Variable| match given.get(row.name) {
        Some(text) => format!("{}={}\n", row.name, row.kind.masked(text)),
        None => format!("# {}={}\n", row.name, row.default),
    };
    variables().map(line).collect()
}

fn kind(kind: Kind) -> String {
    match kind {
        Kind::Text => "text".to_owned(),
        Kind::Path => "path".to_owned(),
        Kind::Secret => "secret".to_owned(),
        Kind::Url => "address".to_owned(),
        Kind::Choice(words) => words.iter().filter(|word| !word.is_empty()).copied().collect::<Vec<_>>().join(", "),
        Kind::Boolean => "boolean".to_owned(),
        Kind::Integer(unit) => unit.to_owned(),
        Kind::Float => "number".to_owned(),
        Kind::Duration => "time span".to_owned(),
        Kind::Retention => "retention".to_owned(),
        Kind::List => "list".to_owned(),
        Kind::Map => "map".to_owned(),
    }
}

fn support(support: Support) -> &'static str {
    match support {
        Support::Full => "yes",
        Support::Refused { .. } => "no",
        Support::Warned { .. } => "ignored",
        Support::Unused => "later",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_masked() {
        let given = [("REDIS_AUTH", "hunter2"), ("REDIS_URL", "redis://u:hunter2@h:1"), ("PORT", "1")];
        let text = lines(&given.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
        assert!(!text.contains("hunter2"), "{text}");
        assert!(text.contains("\nPORT=1\n"), "{text}");
        assert!(text.contains("\n# DEBUG_PORT=6070\n"), "{text}");
    }
}
