//! JSON text that is checked once and passed on unchanged.

use std::fmt;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::trace;

/// A JSON value as text. The engine does not parse it, so numbers and the order of keys stay as
/// they were sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Json(Box<str>);

impl Json {
    /// Checks that a text is one JSON value.
    ///
    /// # Errors
    /// The text is not one JSON value; the error contains the position.
    pub fn parse(text: impl Into<Box<str>>) -> Result<Self, serde_json::Error> {
        let text = text.into();
        serde_json::from_str::<IgnoredAny>(&text)?;
        Ok(Self(text))
    }

    /// Wraps a text that the caller knows to be one JSON value, for example from a parser.
    #[must_use]
    pub fn from_checked(text: impl Into<Box<str>>) -> Self {
        Self(text.into())
    }

    /// The text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Globals with the global `$trace` set to this JSON text. `None` if they already have a trace,
    /// which takes precedence, or are not an object.
    #[must_use]
    pub fn with_trace(globals: Option<&str>, trace: &str) -> Option<Self> {
        trace::add_trace(globals, trace)
    }

    /// The trace context of the creation of a workflow with these globals: their global `$trace`,
    /// as JSON text.
    #[must_use]
    pub fn trace_in(globals: &str) -> Option<&str> {
        trace::find_trace(globals).ok()?
    }

    /// Whether the value is `null`.
    #[must_use]
    pub fn is_null(&self) -> bool {
        self.0.trim() == "null"
    }

    /// The nesting depth of arrays and objects.
    #[must_use]
    pub fn depth(&self) -> usize {
        json_depth(&self.0)
    }

    /// Whether the value is an object.
    #[must_use]
    pub fn is_object(&self) -> bool {
        self.0.trim_start().starts_with('{')
    }
}

/// The nesting depth of arrays and objects in a JSON text.
#[must_use]
pub fn json_depth(json: &str) -> usize {
    let mut depth = 0_usize;
    let mut deepest = 0;
    let mut bytes = json.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            b'"' => {
                while let Some(byte) = bytes.next().filter(|byte| *byte != b'"') {
                    if byte == b'\\' {
                        bytes.next();
                    }
                }
            }
            _ => {}
        }
    }
    deepest
}

impl fmt::Display for Json {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_value_is_taken_as_it_is() {
        for text in [
            "1",
            " [1.10, 1e400] ",
            "{\"b\":1,\"a\":2,\"b\":3}",
            "\"\\u00e9\"",
            "null",
            "true",
        ] {
            let json = Json::parse(text).unwrap();
            assert_eq!((json.text(), json.to_string()), (text, text.to_owned()));
        }
    }

    #[test]
    fn other_texts_are_refused_with_the_place() {
        for text in [
            "",
            " ",
            "{",
            "1 2",
            "{a:1}",
            "[1,]",
            "nul",
            "'a'",
            "\u{a0}{}",
            "{\"a\":1}}",
        ] {
            let error = Json::parse(text).unwrap_err().to_string();
            assert!(error.contains("line 1 column"), "{text:?}: {error}");
        }
    }

    #[test]
    fn depth_counts_brackets_outside_of_strings() {
        for (json, expected) in [
            ("1", 0),
            ("\"[[\"", 0),
            ("[]", 1),
            ("[[],{\"a\":[1]}]", 3),
            (r#"{"\"[[[":"\\","b":[1]}"#, 2),
        ] {
            assert_eq!(json_depth(json), expected, "{json}");
        }
    }

    #[test]
    fn deep_nesting_needs_no_stack() {
        let deep = format!("{}{}", "[".repeat(1_000_000), "]".repeat(1_000_000));
        assert!(Json::parse(deep).is_ok());
    }

    #[test]
    fn objects_and_null_are_told_by_their_first_character() {
        let check = |text: &str, object: bool, null: bool| {
            let json = Json::parse(text).unwrap();
            assert_eq!((json.is_object(), json.is_null()), (object, null), "{text}");
        };
        check("{}", true, false);
        check("\n\t {\"a\":null}", true, false);
        check(" null\n", false, true);
        check("\"null\"", false, false);
        check("[{}]", false, false);
        check("0", false, false);
    }
}
