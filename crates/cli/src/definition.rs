//! Definitions of workflows in files: JSON as it is, YAML as the JSON that it means.

mod reader;
pub(crate) mod source;
mod tree;

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read as _};
use std::path::Path;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;

pub use tree::fields as fields_of;
use tree::{Node, Place};

const EXPECTED: &str = "a definition, which is a map with `name` and `jobs`";

/// A definition as it was written.
#[derive(Debug)]
pub struct Definition {
    text: String,
    fields: BTreeMap<String, Box<RawValue>>,
}

/// What is wrong with it, and where: a line and a column, both counted from 1.
#[derive(Debug, PartialEq, Eq)]
pub struct Mistake {
    /// None when it is wrong as a whole.
    pub place: Option<(usize, usize)>,
    /// What is wrong.
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
    /// Reads the text of `file`. The extension tells JSON from YAML; without one, a text that begins with a brace is JSON.
    ///
    /// # Errors
    /// It is neither, or not a map, or a field is in it twice.
    pub fn parse(file: &Path, text: String) -> Result<Self, Mistake> {
        let json = if is_yaml(file, &text) { Some(Node::read(&text).map_err(of_yaml)?.json()) } else { None };
        let fields: Result<Fields, _> = serde_json::from_str(json.as_ref().unwrap_or(&text));
        match fields {
            Ok(Fields(fields)) => Ok(Self { text, fields }),
            Err(error) => Err(of_json(&error)),
        }
    }

    /// The same as JSON.
    #[must_use]
    pub fn json(&self) -> String {
        serde_json::to_string(&self.fields).expect("texts and raw JSON are JSON")
    }

    /// What a server found wrong at a path such as `jobs[0].after`, with the place in the text that the path leads to.
    #[must_use]
    pub fn mistake(&self, path: &str, detail: &str) -> Mistake {
        let place = Node::read(&self.text).ok().and_then(|root| root.place(path));
        // The server counts lines in the JSON that it got, and its text may begin with the path, which is shown separately.
        let reason = detail.rsplit_once(" at line ").map_or(detail, |(reason, _)| reason);
        let reason = reason.strip_prefix(path).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(reason);
        Mistake { place: place.map(|Place { line, column }| (line, column)), reason: reason.to_owned() }
    }
}

/// The text of a file; `-` is standard input.
///
/// # Errors
/// It cannot be read, or is not UTF-8.
pub fn text_of(file: &Path) -> io::Result<String> {
    if file != Path::new("-") {
        return std::fs::read_to_string(file);
    }
    let mut text = String::new();
    io::stdin().lock().read_to_string(&mut text).map(|_| text)
}

fn is_yaml(file: &Path, text: &str) -> bool {
    match file.extension().and_then(|extension| extension.to_str()) {
        Some("yaml" | "yml") => true,
        Some("json") => false,
        _ => !text.trim_start().starts_with('{'),
    }
}

fn of_yaml(tree::Mistake { place: Place { line, column }, reason }: tree::Mistake) -> Mistake {
    Mistake { place: Some((line, column)), reason }
}

fn of_json(error: &serde_json::Error) -> Mistake {
    let whole = error.to_string();
    let reason = whole.rsplit_once(" at line ").map_or(whole.as_str(), |(reason, _)| reason);
    // Only the outermost value has an expected type here.
    if reason.starts_with("invalid type") {
        return Mistake { place: None, reason: format!("expected {EXPECTED}") };
    }
    Mistake { place: Some((error.line(), error.column())), reason: reason.to_owned() }
}

/// The fields of an object. A field that occurs twice is refused, since one would hide the other.
struct Fields(BTreeMap<String, Box<RawValue>>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Fields;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(EXPECTED)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = BTreeMap::new();
                while let Some((name, value)) = map.next_entry::<String, Box<RawValue>>()? {
                    if fields.contains_key(&name) {
                        return Err(A::Error::custom(format!("'{name}' is there twice")));
                    }
                    fields.insert(name, value);
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(Reader)
    }
}
