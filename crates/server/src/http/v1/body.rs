//! Bodies of requests: JSON that must be exactly what is expected, or the answer says where it is not.

use std::fmt;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};

use super::problem::{Code, Problem};
use crate::span;

/// Reads a body.
///
/// # Errors
/// It is not JSON, or not of this shape.
pub(super) fn read<'de, T: Deserialize<'de>>(body: &'de [u8]) -> Result<T, Problem> {
    serde_json::from_slice(body).map_err(|error| mistake::<T>(body, &error))
}

/// Reads a body of which every field may be left out, and so may the body.
pub(super) fn read_optional<'de, T: Deserialize<'de>>(body: &'de [u8]) -> Result<T, Problem> {
    read(if body.trim_ascii().is_empty() { b"{}" } else { body })
}

/// Reads once more to find out where the mistake is; only those who make one pay for it.
fn mistake<'de, T: Deserialize<'de>>(body: &'de [u8], error: &serde_json::Error) -> Problem {
    if !error.is_data() {
        return Problem::new(Code::InvalidJson, error.to_string());
    }
    let mut json = serde_json::Deserializer::from_slice(body);
    match serde_path_to_error::deserialize::<_, T>(&mut json) {
        Err(error) => {
            let path = error.path().to_string();
            let detail = error.into_inner().to_string();
            Problem::field(with_field(if path == "." { "" } else { &path }, &detail), detail)
        }
        Ok(_) => Problem::field("", error.to_string()),
    }
}

/// A field that is missing or there twice has no place of its own: the path ends at the object around it.
fn with_field(path: &str, detail: &str) -> String {
    let rest = detail.strip_prefix("missing field `").or_else(|| detail.strip_prefix("duplicate field `"));
    match rest.and_then(|rest| rest.split_once('`')) {
        Some((field, _)) if path.is_empty() => field.to_owned(),
        Some((field, _)) if !path.ends_with(field) => format!("{path}.{field}"),
        _ => path.to_owned(),
    }
}

/// A time span: a text such as `30s`, or a number of milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span(pub(super) Duration);

const SPAN: &str = "a time span such as \"30s\" or a number of milliseconds, at most a hundred years";

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = Span;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(SPAN)
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Span, E> {
                let invalid = || E::invalid_value(serde::de::Unexpected::Str(text), &self);
                span::read(text).map(Span).ok_or_else(invalid)
            }
            fn visit_u64<E: Error>(self, millis: u64) -> Result<Span, E> {
                self.visit_f64(millis as f64)
            }
            fn visit_i64<E: Error>(self, millis: i64) -> Result<Span, E> {
                self.visit_f64(millis as f64)
            }
            fn visit_f64<E: Error>(self, millis: f64) -> Result<Span, E> {
                let invalid = || E::invalid_value(serde::de::Unexpected::Float(millis), &self);
                span::of_seconds(millis / 1e3).map(Span).ok_or_else(invalid)
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

/// One name, or a list of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Names(pub(super) Vec<String>);

impl<'de> Deserialize<'de> for Names {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Names;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a name or a list of names")
            }
            fn visit_str<E: Error>(self, name: &str) -> Result<Names, E> {
                Ok(Names(vec![name.to_owned()]))
            }
            fn visit_unit<E: Error>(self) -> Result<Names, E> {
                Ok(Names::default())
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Names, A::Error> {
                let mut names = Vec::new();
                while let Some(name) = items.next_element()? {
                    names.push(name);
                }
                Ok(Names(names))
            }
        }
        deserializer.deserialize_any(Reader)
    }
}
