//! JSON as YAML in block style, for people who read YAML and programs that want it.

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::screen::printable::steers;

/// The YAML document that means the same as a JSON text. Numbers stay as they are written, and fields in their order.
pub(crate) fn document(json: &str) -> Result<String, serde_json::Error> {
    let mut out = "---\n".to_owned();
    match Node::read(json)? {
        Node::Scalar(text) => out += &format!("{text}\n"),
        node => node.write(0, &mut out)?,
    }
    Ok(out)
}

enum Node {
    Scalar(String),
    List(Vec<Box<RawValue>>),
    Map(Vec<(String, Box<RawValue>)>),
}

impl Node {
    fn read(json: &str) -> Result<Self, serde_json::Error> {
        match json.trim_start().as_bytes().first() {
            Some(b'{') => Ok(Self::Map(serde_json::from_str::<Pairs>(json)?.0)),
            Some(b'[') => Ok(Self::List(serde_json::from_str(json)?)),
            Some(b'"') => Ok(Self::Scalar(text(&serde_json::from_str::<String>(json)?))),
            _ => Ok(Self::Scalar(json.trim().to_owned())),
        }
    }

    /// Writes lines that begin with `indent` spaces.
    fn write(self, indent: usize, out: &mut String) -> Result<(), serde_json::Error> {
        let before = " ".repeat(indent);
        match self {
            Self::Scalar(text) => *out += &format!("{before}{text}\n"),
            Self::List(items) if items.is_empty() => *out += &format!("{before}[]\n"),
            Self::Map(pairs) if pairs.is_empty() => *out += &format!("{before}{{}}\n"),
            Self::List(items) => {
                for item in items {
                    let mut inner = String::new();
                    Self::read(item.get())?.write(indent + 2, &mut inner)?;
                    // The first line of an item follows its dash.
                    *out += &format!("{before}- {}", &inner[indent + 2..]);
                }
            }
            Self::Map(pairs) => {
                for (name, value) in pairs {
                    *out += &format!("{before}{}:", text(&name));
                    value_of_key(Self::read(value.get())?, indent, out)?;
                }
            }
        }
        Ok(())
    }

    fn is_block(&self) -> bool {
        match self {
            Self::Scalar(_) => false,
            Self::List(items) => !items.is_empty(),
            Self::Map(pairs) => !pairs.is_empty(),
        }
    }
}

fn value_of_key(node: Node, indent: usize, out: &mut String) -> Result<(), serde_json::Error> {
    if node.is_block() {
        out.push('\n');
        return node.write(indent + 2, out);
    }
    out.push(' ');
    node.write(0, out)
}

/// A text, in quotes unless every YAML reader takes it for a text without them.
fn text(text: &str) -> String {
    // YAML 1.1 or 1.2 reads these words as other types.
    const WORDS: [&str; 9] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    let usual = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | ' ');
    let plain = text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.chars().all(usual);
    if plain && !text.ends_with(' ') && !WORDS.contains(&text.to_ascii_lowercase().as_str()) {
        return text.to_owned();
    }
    let quoted = serde_json::to_string(text).expect("a text is JSON");
    // JSON allows these characters unescaped; YAML or a terminal does not.
    quoted.chars().map(|c| if steers(c) { format!("\\u{:04x}", u32::from(c)) } else { c.to_string() }).collect()
}

/// The fields of an object in their order.
struct Pairs(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Pairs;

            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(Reader)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(json: &str, expected: &str) {
        assert_eq!(document(json).unwrap(), format!("---\n{expected}\n"), "{json}");
    }

    #[test]
    fn structure_is_shown_by_indentation() {
        check(
            r#"{"b": 1, "a": {"c": [1, {"d": [], "e": {}}, [2]]}}"#,
            "b: 1\na:\n  c:\n    - 1\n    - d: []\n      e: {}\n    - - 2",
        );
        check("[]", "[]");
        check("{}", "{}");
        check("12345678901234567890123", "12345678901234567890123");
    }

    #[test]
    fn texts_stay_texts() {
        check(
            r#"["a b", "1", "", "true", "No", "~", "a: b", "x\ny", "2026-11-21", "\ud83d\ude00", "a\u001b\u009b"]"#,
            "- a b\n- \"1\"\n- \"\"\n- \"true\"\n- \"No\"\n- \"~\"\n- \"a: b\"\n- \"x\\ny\"\n- \"2026-11-21\"\n- \"😀\"\n- \"a\\u001b\\u009b\"",
        );
        check(r#"{"1": "a"}"#, "\"1\": a");
    }
}
