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

use tree::{Place, Tree};

const EXPECTED: &str = "a definition, which is a map with `name` and `jobs`";

/// A definition, with its text.
#[derive(Debug)]
pub struct Definition {
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
    pub place: Option<(usize, usize)>,
    /// The reason, without the position.
    pub reason: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
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
        let language = Language::of(file, &text);
        let fields = match language {
            Language::Json => fields(&text)?,
            Language::Yaml => fields(&Tree::read(&text).map_err(of_yaml)?.json())?,
        };
        Ok(Self {
            text,
            language,
            fields,
        })
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
        let place = match self.language {
            Language::Json => json::place(&self.text, path),
            Language::Yaml => Tree::read(&self.text)
                .ok()
                .and_then(|root| root.place(path)),
        };
        // The server counts lines in the JSON that it got, and its text may begin with the path,
        // which is shown separately.
        let reason = without_place(detail);
        let reason = reason
            .strip_prefix(path)
            .and_then(|rest| rest.strip_prefix(": "))
            .unwrap_or(reason);
        Mistake {
            place: place.map(Place::pair),
            reason: reason.to_owned(),
        }
    }
}

/// Reads the text of a file; `-` is standard input.
///
/// # Errors
/// The file cannot be read, or is not UTF-8.
pub fn text_of(file: &Path) -> io::Result<String> {
    if file != Path::new("-") {
        return std::fs::read_to_string(file);
    }
    let mut text = String::new();
    io::stdin().lock().read_to_string(&mut text).map(|_| text)
}

/// Names of the top-level fields of a YAML or JSON file, as far as it can be read.
#[must_use]
pub fn fields_of(file: &Path, text: &str) -> Vec<String> {
    let names =
        |pairs: Vec<json::Pair<'_>>| pairs.into_iter().map(|(raw, _)| json::name(raw)).collect();
    match Language::of(file, text) {
        Language::Json => json::pairs(text)
            .and_then(names)
            .unwrap_or_else(|_| tidegate_yaml::outer_names(text.as_bytes())),
        Language::Yaml => tidegate_yaml::outer_names(text.as_bytes()),
    }
}

impl Language {
    fn of(file: &Path, text: &str) -> Self {
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
    for (raw, value) in json::pairs(json).map_err(|error| of_json(&error, json))? {
        let mistake = |reason| Mistake {
            place: Some(json::place_of(raw.get(), json).pair()),
            reason,
        };
        let name = json::name(raw)
            .map_err(|error| mistake(without_place(&error.to_string()).to_owned()))?;
        if fields.contains_key(&name) {
            return Err(mistake(format!("'{name}' is there twice")));
        }
        fields.insert(name, value.to_owned());
    }
    Ok(fields)
}

fn of_yaml(tree::Mistake { place, reason }: tree::Mistake) -> Mistake {
    Mistake {
        place: Some(place.pair()),
        reason,
    }
}

fn of_json(error: &serde_json::Error, json: &str) -> Mistake {
    let whole = error.to_string();
    let reason = without_place(&whole);
    // Only the top-level value has an expected type here.
    if reason.starts_with("invalid type") {
        return Mistake {
            place: None,
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
        place: Some(Place::of(json, offset).pair()),
        reason: reason.to_owned(),
    }
}

/// The message of a JSON parser without the position at its end.
fn without_place(message: &str) -> &str {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_place = |place: &str| {
        place
            .split_once(" column ")
            .is_some_and(|(line, column)| number(line) && number(column))
    };
    match message.rsplit_once(" at line ") {
        Some((reason, place)) if is_place(place) => reason,
        _ => message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outermost_names_are_found_without_reading_all() {
        let names = |text: &str| fields_of(Path::new("a.yaml"), text);
        assert_eq!(
            names("domain: a\ndescriptors:\n- {key: k, jobs: 1}\nx: *y\n"),
            ["domain", "descriptors", "x"]
        );
        assert_eq!(names("a: {b: [c]}\n{"), ["a"]);
        assert!(names("- a\n").is_empty() && names("").is_empty());
    }
}
