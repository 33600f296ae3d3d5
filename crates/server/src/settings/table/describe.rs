//! One setting, explained for a terminal.

mod example;

use std::collections::HashMap;

use super::show::kind;
use super::{SECTIONS, Section, Support, Variable};
use crate::settings::read::{environment, suggestion};
use example::example;

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
        support(row),
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

/// The support of a setting in this version, in words.
fn support(row: &Variable) -> String {
    match row.support {
        Support::Full => "full: the setting works".to_owned(),
        Support::Refused { but, why } => {
            format!("none: the server refuses to start with another value than {but}, as {why}")
        }
        Support::Warned { why } => format!("none: the value has no effect, as {why}"),
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
    fn each_setting_is_described() {
        for row in variables() {
            let text = describe_in(row.name, &HashMap::new()).unwrap();
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
