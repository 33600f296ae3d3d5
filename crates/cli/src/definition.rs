//! Definitions of workflows in files. JSON stays as it was written; YAML is converted to JSON.

mod core_schema;
mod json;
pub(crate) mod source;
mod tree;

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read as _};
use std::path::Path;

use serde_json::value::RawValue;

use crate::output::exit::{CommandResult, Failure};
use crate::output::json::{JsonField, name, pairs};
use tree::{SourcePosition, YamlTree, position_at};

const EXPECTED: &str = "a definition, which is a map with `name` and `jobs`";

/// A definition, with its text.
#[derive(Debug)]
pub struct Definition {
    /// Name of the file for people.
    name: String,
    text: String,
    language: Language,
    fields: BTreeMap<String, Box<RawValue>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Language {
    Json,
    Yaml,
}

/// A mistake in a definition, with its position: line and column, both counted from 1.
#[derive(Debug, PartialEq, Eq)]
pub struct Mistake {
    /// None if the mistake concerns the definition as a whole.
    pub position: Option<SourcePosition>,
    /// The reason, without the position.
    pub reason: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.position {
            Some((line, column)) => write!(f, "{line}:{column}: {}", self.reason),
            None => write!(f, " {}", self.reason),
        }
    }
}

impl Definition {
    /// Reads the text of `file`. The extension tells JSON from YAML; without one, a text that
    /// begins with a brace is JSON.
    ///
    /// # Errors
    /// The text is neither JSON nor YAML, is not a map, or repeats a field.
    pub fn parse(file: &Path, text: String) -> Result<Self, Mistake> {
        let language = Language::from_file(file, &text);
        let fields = match language {
            Language::Json => fields(&text)?,
            Language::Yaml => fields(&YamlTree::read(&text)?.json())?,
        };
        Ok(Self {
            name: file_name(file),
            text,
            language,
            fields,
        })
    }

    /// Reads the definition in `file`; `-` is standard input.
    pub(crate) fn read(file: &Path) -> CommandResult<Self> {
        let text = read_text(file).map_err(|error| {
            Failure::usage(format!("{} cannot be read: {error}", file_name(file)))
        })?;
        Self::of_file(file, text)
    }

    fn of_file(file: &Path, text: String) -> CommandResult<Self> {
        Self::parse(file, text)
            .map_err(|mistake| Failure::usage(format!("{}:{mistake}", file_name(file))))
    }

    /// Adds the position in the file to a failure that the server reported at a path.
    pub(crate) fn with_position(&self, failure: Failure) -> Failure {
        let Some(path) = &failure.path else {
            return failure;
        };
        Failure {
            text: format!("{}:{}", self.name, self.mistake(path, &failure.text)),
            ..failure
        }
    }

    /// Whether the definition has this top-level field.
    #[must_use]
    pub fn has(&self, field: &str) -> bool {
        self.fields.contains_key(field)
    }

    /// The definition as JSON.
    #[must_use]
    pub fn json(&self) -> String {
        serde_json::to_string(&self.fields).expect("texts and raw JSON are JSON")
    }

    /// Translates a mistake that a server found at a path such as `jobs[0].after` into a position
    /// in the text.
    #[must_use]
    pub fn mistake(&self, path: &str, detail: &str) -> Mistake {
        let position = match self.language {
            Language::Json => json::position_of_path(&self.text, path),
            Language::Yaml => YamlTree::read(&self.text)
                .ok()
                .and_then(|root| root.position(path)),
        };
        // The server counts lines in the JSON that it got, and its text may begin with the path,
        // which is shown separately.
        let reason = without_position(detail);
        let reason = reason
            .strip_prefix(path)
            .and_then(|rest| rest.strip_prefix(": "))
            .unwrap_or(reason);
        Mistake {
            position,
            reason: reason.to_owned(),
        }
    }
}

/// Name of a file for people; `-` is standard input.
#[must_use]
pub fn file_name(file: &Path) -> String {
    if file == Path::new("-") {
        "standard input".to_owned()
    } else {
        file.display().to_string()
    }
}

fn read_text(file: &Path) -> io::Result<String> {
    if file != Path::new("-") {
        return std::fs::read_to_string(file);
    }
    let mut text = String::new();
    io::stdin().lock().read_to_string(&mut text).map(|_| text)
}

/// Names of the top-level fields of a YAML or JSON file, as far as it can be read.
#[must_use]
pub fn field_names(file: &Path, text: &str) -> Vec<String> {
    let names = |pairs: Vec<JsonField<'_>>| pairs.into_iter().map(|(raw, _)| name(raw)).collect();
    match Language::from_file(file, text) {
        Language::Json => pairs(text)
            .and_then(names)
            .unwrap_or_else(|_| tidegate_yaml::top_level_keys(text.as_bytes())),
        Language::Yaml => tidegate_yaml::top_level_keys(text.as_bytes()),
    }
}

impl Language {
    fn from_file(file: &Path, text: &str) -> Self {
        match file.extension().and_then(|extension| extension.to_str()) {
            Some("yaml" | "yml") => Self::Yaml,
            Some("json") => Self::Json,
            _ if text.trim_start().starts_with('{') => Self::Json,
            _ => Self::Yaml,
        }
    }
}

/// The fields of an object. A field that occurs twice is refused, since one would hide the other.
fn fields(json: &str) -> Result<BTreeMap<String, Box<RawValue>>, Mistake> {
    let mut fields = BTreeMap::new();
    for (raw, value) in pairs(json).map_err(|error| from_json_error(&error, json))? {
        let mistake = |reason| Mistake {
            position: Some(json::position_of(raw.get(), json)),
            reason,
        };
        let name =
            name(raw).map_err(|error| mistake(without_position(&error.to_string()).to_owned()))?;
        if fields.contains_key(&name) {
            return Err(mistake(format!("'{name}' is there twice")));
        }
        fields.insert(name, value.to_owned());
    }
    Ok(fields)
}

fn from_json_error(error: &serde_json::Error, json: &str) -> Mistake {
    let whole = error.to_string();
    let reason = without_position(&whole);
    // Only the top-level value has an expected type here.
    if reason.starts_with("invalid type") {
        return Mistake {
            position: None,
            reason: format!("expected {EXPECTED}"),
        };
    }
    // serde_json counts columns in bytes.
    let before: usize = json
        .split_inclusive('\n')
        .take(error.line().saturating_sub(1))
        .map(str::len)
        .sum();
    let offset = before + error.column().saturating_sub(1);
    Mistake {
        position: Some(position_at(json, offset)),
        reason: reason.to_owned(),
    }
}

/// The message of a JSON parser without the position at its end.
fn without_position(message: &str) -> &str {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_place = |position: &str| {
        position
            .split_once(" column ")
            .is_some_and(|(line, column)| number(line) && number(column))
    };
    match message.rsplit_once(" at line ") {
        Some((reason, position)) if is_place(position) => reason,
        _ => message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outermost_names_are_found_without_reading_all() {
        let names = |text: &str| field_names(Path::new("a.yaml"), text);
        assert_eq!(
            names("domain: a\ndescriptors:\n- {key: k, jobs: 1}\nx: *y\n"),
            ["domain", "descriptors", "x"]
        );
        assert_eq!(names("a: {b: [c]}\n{"), ["a"]);
        assert!(names("- a\n").is_empty() && names("").is_empty());
    }
}
