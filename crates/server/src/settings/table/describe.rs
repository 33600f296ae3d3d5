//! One setting, explained for a terminal.

use std::collections::HashMap;

use super::show::{kind, support};
use super::value::VariableKind;
use super::{SECTIONS, Section, Variable};
use crate::settings::read::{environment, suggestion};

/// Explains a variable: what it does, its default, its value, and an example.
///
/// # Errors
/// There is no such variable.
pub fn describe(name: &str) -> Result<String, String> {
    describe_in(name, &environment())
}

fn describe_in(name: &str, given: &HashMap<String, String>) -> Result<String, String> {
    let name = name.to_ascii_uppercase();
    let Some((section, row)) = find(&name) else {
        let meant = suggestion(&name).map_or_else(
            || "`tidegate settings` lists all".to_owned(),
            |meant| format!("did you mean {meant}?"),
        );
        return Err(format!("{name}: there is no such setting; {meant}"));
    };
    let value = match given.get(row.name) {
        Some(text) => row.kind.masked(text),
        None => "not set".to_owned(),
    };
    let doc = without_links(row.doc);
    Ok(format!(
        "{name} ({})\n\n{doc}\n\ntype     {}\ndefault  {}\nsupport  {}\nvalue    {value}\nexample  {name}={}\n",
        section.title,
        kind(row.kind),
        default(row),
        support(row.support),
        example(row),
    ))
}

fn find(name: &str) -> Option<(&'static Section, &'static Variable)> {
    SECTIONS.iter().find_map(|section| {
        let row = section.rows.iter().find(|row| row.name == name)?;
        Some((section, row))
    })
}

fn default(row: &Variable) -> &'static str {
    match (row.unset, row.default) {
        (Some(unset), _) => unset,
        (None, "") => "none",
        (None, default) => default,
    }
}

/// A value that the variable accepts by its kind.
fn example(row: &Variable) -> &'static str {
    match row.kind {
        VariableKind::Boolean if row.default == "true" => "false",
        VariableKind::Boolean => "true",
        VariableKind::Choice(words) => {
            let other = |word: &&&str| !word.is_empty() && **word != row.default;
            words.iter().find(other).copied().unwrap_or(row.default)
        }
        _ if !row.default.is_empty() => row.default,
        VariableKind::Text => "text",
        VariableKind::Path => "/etc/tidegate/file",
        VariableKind::Secret => "secret",
        VariableKind::Url if row.name.contains("OTLP") => "http://collector:4318",
        VariableKind::Url if row.name.contains("REDIS") || row.name.contains("STORE") => {
            "redis://localhost:6379"
        }
        VariableKind::Url => "localhost:18000",
        VariableKind::Integer(_) => "1",
        VariableKind::Bytes => "64M",
        VariableKind::Float => "0.5",
        VariableKind::Duration => "10s",
        VariableKind::Retention => "succeeded=7d,failed=30d",
        VariableKind::List => "first,second",
        VariableKind::Map | VariableKind::Headers => "name:value,other:value",
    }
}

/// Replaces links of Markdown by their texts.
fn without_links(doc: &str) -> String {
    let mut text = String::new();
    let mut rest = doc;
    while let Some((before, link)) = rest.split_once("](") {
        let Some((_, after)) = link.split_once(')') else {
            break;
        };
        let (start, label) = before.rsplit_once('[').unwrap_or((before, ""));
        text += start;
        text += label;
        rest = after;
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::super::variables;
    use super::*;

    #[test]
    fn each_setting_has_an_example_of_its_kind() {
        for row in variables() {
            let text = describe_in(row.name, &HashMap::new()).unwrap();
            assert!(row.kind.read(example(row)).is_some(), "{text}");
            assert!(!text.contains("]("), "{text}");
            assert!(text.contains("\nvalue    not set\n"), "{text}");
        }
    }

    #[test]
    fn values_are_shown_without_secrets_and_names_are_suggested() {
        let given = [("REDIS_AUTH", "hunter2"), ("PORT", "81")];
        let given = given.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let given = HashMap::from(given);
        let value = |name| describe_in(name, &given).unwrap();
        assert!(value("redis_auth").contains("\nvalue    *****\n"));
        assert!(value("PORT").contains("\nvalue    81\n"));
        let missing = |name| describe_in(name, &given).unwrap_err();
        assert_eq!(
            missing("TIDEGATE_CORE"),
            "TIDEGATE_CORE: there is no such setting; did you mean TIDEGATE_CORES?"
        );
        assert!(missing("REDIS_ULR").ends_with("did you mean REDIS_URL?"));
        assert!(missing("x").ends_with("`tidegate settings` lists all"));
    }
}
