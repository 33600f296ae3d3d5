//! JSON object that is written field by field. Serde checks each key, id and time for characters to
//! escape. In an answer with many jobs that costs more than everything else.

use std::fmt::Write as _;

use serde::ser::{Serialize, Serializer};

use super::Verbatim;

/// The text of a JSON object that is being written.
#[derive(Debug)]
pub(crate) struct ObjectText(String);

impl ObjectText {
    /// Starts an object whose text has about this number of bytes.
    pub(crate) fn of_about(bytes: usize) -> Self {
        Self(String::with_capacity(bytes))
    }

    fn key(&mut self, key: &'static str) {
        self.0
            .push_str(if self.0.is_empty() { "{\"" } else { ",\"" });
        self.0.push_str(key);
        self.0.push_str("\":");
    }

    /// Adds a value that is JSON text.
    pub(crate) fn json(mut self, key: &'static str, value: &str) -> Self {
        self.key(key);
        self.0.push_str(value);
        self
    }

    /// Adds a text without characters to escape.
    pub(crate) fn plain(mut self, key: &'static str, value: &str) -> Self {
        debug_assert!(is_plain(value), "{value}");
        self.key(key);
        self.0.push('"');
        self.0.push_str(value);
        self.0.push('"');
        self
    }

    /// Adds any text.
    pub(crate) fn text(self, key: &'static str, value: &str) -> Self {
        if is_plain(value) {
            self.plain(key, value)
        } else {
            self.value(key, value)
        }
    }

    /// Adds a number, or null if there is none.
    pub(crate) fn number(mut self, key: &'static str, value: Option<u64>) -> Self {
        self.key(key);
        match value {
            Some(digit @ 0..10) => self.0.push(char::from(b'0' + digit as u8)),
            Some(value) => write!(self.0, "{value}").expect("a String takes any text"),
            None => self.0.push_str("null"),
        }
        self
    }

    /// Adds a list.
    pub(crate) fn list<T: Serialize>(self, key: &'static str, values: &[T]) -> Self {
        if values.is_empty() {
            self.json(key, "[]")
        } else {
            self.value(key, values)
        }
    }

    /// Adds any value.
    pub(crate) fn value<T: Serialize + ?Sized>(self, key: &'static str, value: &T) -> Self {
        let text = serde_json::to_string(value).expect("keys are texts");
        self.json(key, &text)
    }

    /// Serializes the finished object.
    pub(crate) fn serialize<S: Serializer>(mut self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.push_str(if self.0.is_empty() { "{}" } else { "}" });
        Verbatim(self.0.into()).serialize(serializer)
    }
}

/// Whether JSON writes a text without escapes.
fn is_plain(text: &str) -> bool {
    text.bytes()
        .all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_what_serde_writes() {
        let check = |object: ObjectText, expected: serde_json::Value| {
            let text = object.serialize(serde_json::value::Serializer);
            assert_eq!(text.unwrap(), expected);
        };
        check(ObjectText::of_about(0), serde_json::json!({}));
        let all = ObjectText::of_about(8)
            .plain("a", "é")
            .text("b", "\"\\\u{1}\n")
            .number("c", Some(9))
            .number("d", None);
        let all = all
            .number("e", Some(u64::MAX))
            .json("f", "[1]")
            .value("g", &["x"]);
        let expected = serde_json::json!({
            "a": "é", "b": "\"\\\u{1}\n", "c": 9, "d": null, "e": u64::MAX, "f": [1], "g": ["x"],
        });
        check(all, expected);
    }
}
