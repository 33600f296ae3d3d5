//! Positions in JSON text, and the value that a path leads to. Nothing is copied.

use std::fmt;

use serde::de::{Deserializer as _, Error, IgnoredAny, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::tree::{self, SourcePosition, position_at};
use crate::output::json::{JsonField, name, read};

/// Position of `part`, which is a slice of `text`.
pub(super) fn position_of(part: &str, text: &str) -> SourcePosition {
    position_at(
        text,
        (part.as_ptr() as usize).saturating_sub(text.as_ptr() as usize),
    )
}

/// Position of the value that a path leads to, by the rules of the YAML tree. Of fields with equal
/// names, the last counts.
pub(super) fn position_of_path(text: &str, path: &str) -> Option<SourcePosition> {
    let mut value = text;
    let mut path = path;
    let mut found = None;
    while let Some((part, inner, rest)) = step(value, path) {
        (value, path, found) = (inner, rest, Some(part));
    }
    found.map(|part| position_of(part, text))
}

/// The name or item of the first step of a path, its value, and the rest of the path.
fn step<'a, 'p>(json: &'a str, path: &'p str) -> Option<(&'a str, &'a str, &'p str)> {
    if json.trim_start().starts_with('[') {
        let (number, rest) = tree::split_index(path)?;
        let item = serde_json::Deserializer::from_str(json)
            .deserialize_seq(ItemVisitor(number))
            .ok()??;
        return Some((item.get(), item.get(), rest));
    }
    let mut best: Option<(&str, &str, &str)> = None;
    let better = |(raw, value): JsonField<'a>| {
        let rest = name(raw)
            .ok()
            .and_then(|name| tree::strip_field(&name, path));
        if let Some(rest) =
            rest.filter(|rest| best.is_none_or(|(_, _, best)| rest.len() <= best.len()))
        {
            best = Some((raw.get(), value.get(), rest));
        }
    };
    read(json, better).ok()?;
    best
}

/// Visitor that returns one item of a list.
struct ItemVisitor(usize);

impl<'de> Visitor<'de> for ItemVisitor {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        for _ in 0..self.0 {
            if list.next_element::<IgnoredAny>()?.is_none() {
                return Err(A::Error::custom("no such item"));
            }
        }
        let item = list.next_element()?;
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, path: &str, expected: Option<(usize, usize)>) {
        let found = position_of_path(text, path);
        assert_eq!(found, expected, "{path} in {:.100}", text);
    }

    #[test]
    fn a_path_leads_to_a_name_or_an_item() {
        let text = "{\n\t\"name\": \"x\",\n\t\"jobs\": [{\"name\": \"a\", \"hand\": 1}, [7, 8]]\n}";
        check(text, "jobs[0].hand", Some((3, 25)));
        check(text, "jobs[1][1]", Some((3, 41)));
        check(text, "jobs[2]", Some((3, 2)));
        check(text, "jobs[0].handler", Some((3, 11)));
        check(text, "tags", None);
        check("[", "[0]", None);
        check("7", "a", None);
    }

    #[test]
    fn names_may_have_dots_and_escapes_and_occur_twice() {
        check(r#"{"a": {"b": 1}, "a.b": 2}"#, "a.b", Some((1, 17)));
        check(
            r#"{"\ud83d\ude00": {"\u0061": 1}}"#,
            "\u{1f600}.a",
            Some((1, 19)),
        );
        check(r#"{"é": 1, "x": {"b": 1, "b": 2}}"#, "x.b", Some((1, 24)));
    }

    #[test]
    fn deep_and_long_texts_need_no_stack() {
        let deep = format!(
            "{{\"a\": {}{}, \"b\": 1}}",
            "[".repeat(100_000),
            "]".repeat(100_000)
        );
        check(&deep, "b", Some((1, 200_009)));
        check(&deep, "a[0]", Some((1, 8)));
    }
}
