//! YAML as JSON: the core schema's types, anchors and aliases, no tags.

use std::collections::HashMap;
use std::fmt;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle};
use serde_json::{Map, Number, Value};

/// Values after aliases are followed: no file of a few lines can ask for more.
const MAX_NODES: usize = 1_000_000;
/// Lists and maps inside each other: as deep as the JSON that the server reads may be.
const MAX_DEPTH: usize = 100;

/// What is wrong, and where, both counted from 1.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mistake {
    line: usize,
    column: usize,
    reason: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.reason)
    }
}

fn mistake(at: Marker, reason: impl Into<String>) -> Mistake {
    Mistake { line: at.line(), column: at.col() + 1, reason: reason.into() }
}

/// The JSON text of the one document in `text`.
pub(crate) fn json(text: &str) -> Result<String, Mistake> {
    let mut builder = Builder::default();
    let mut documents = 0;
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| mistake(*error.marker(), error.info()))?;
        if matches!(event, Event::DocumentStart(_)) {
            documents += 1;
            if documents > 1 {
                return Err(mistake(span.start, "a second document: a file has one definition"));
            }
        }
        builder.event(event).map_err(|reason| mistake(span.start, reason))?;
    }
    let root = builder.root.unwrap_or(Value::Null);
    Ok(serde_json::to_string(&root).expect("a value is JSON"))
}

#[derive(Debug, Default)]
struct Builder {
    open: Vec<Open>,
    anchors: HashMap<usize, (Value, usize)>,
    nodes: usize,
    root: Option<Value>,
}

/// A list or map whose end has not come yet.
#[derive(Debug)]
struct Open {
    anchor: usize,
    /// Values when it began.
    nodes: usize,
    collection: Collection,
}

#[derive(Debug)]
enum Collection {
    List(Vec<Value>),
    Map(Map<String, Value>, Option<String>),
}

impl Builder {
    fn event(&mut self, event: Event<'_>) -> Result<(), String> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                if tag.is_some() {
                    return Err("tags are not understood here".to_owned());
                }
                let value = if style == ScalarStyle::Plain { plain(&text) } else { Value::String(text.into_owned()) };
                self.spend(1)?;
                self.finish(anchor, value, 1)
            }
            Event::SequenceStart(anchor, _) => self.start(anchor, Collection::List(Vec::new())),
            Event::MappingStart(anchor, _) => self.start(anchor, Collection::Map(Map::new(), None)),
            Event::SequenceEnd | Event::MappingEnd => {
                let Open { anchor, nodes, collection } = self.open.pop().expect("the parser pairs starts and ends");
                let value = match collection {
                    Collection::List(items) => Value::Array(items),
                    Collection::Map(map, _) => Value::Object(map),
                };
                self.finish(anchor, value, self.nodes - nodes)
            }
            Event::Alias(anchor) => {
                let (value, nodes) = self.anchors.get(&anchor).cloned().ok_or("an alias to itself")?;
                self.spend(nodes)?;
                self.finish(0, value, nodes)
            }
            _ => Ok(()),
        }
    }

    fn spend(&mut self, nodes: usize) -> Result<(), String> {
        self.nodes += nodes;
        if self.nodes > MAX_NODES { Err(format!("more than {MAX_NODES} values")) } else { Ok(()) }
    }

    fn start(&mut self, anchor: usize, collection: Collection) -> Result<(), String> {
        if self.open.len() == MAX_DEPTH {
            return Err(format!("more than {MAX_DEPTH} lists and maps inside each other"));
        }
        self.open.push(Open { anchor, nodes: self.nodes, collection });
        self.spend(1)
    }

    fn finish(&mut self, anchor: usize, value: Value, nodes: usize) -> Result<(), String> {
        if anchor > 0 {
            self.anchors.insert(anchor, (value.clone(), nodes));
        }
        match self.open.last_mut().map(|open| &mut open.collection) {
            None => self.root = Some(value),
            Some(Collection::List(items)) => items.push(value),
            Some(Collection::Map(map, key)) => match key.take() {
                None => *key = Some(name(value)?),
                Some(key) if map.contains_key(&key) => return Err(format!("'{key}' is there twice")),
                Some(key) => drop(map.insert(key, value)),
            },
        }
        Ok(())
    }
}

/// A key, which JSON has only as text.
fn name(value: Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text),
        Value::Number(_) | Value::Bool(_) | Value::Null => Ok(value.to_string()),
        _ => Err("a key that is not a text".to_owned()),
    }
}

/// What a scalar without quotes means in the core schema.
fn plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return Value::Bool(true),
        "false" | "False" | "FALSE" => return Value::Bool(false),
        _ => {}
    }
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let number = if digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        let radix = |prefix, radix| i64::from_str_radix(text.strip_prefix(prefix)?, radix).ok().map(Number::from);
        let whole =
            || text.parse::<i64>().ok().map(Number::from).or_else(|| text.parse::<u64>().ok().map(Number::from));
        let real = || text.parse::<f64>().ok().and_then(Number::from_f64);
        radix("0x", 16).or_else(|| radix("0o", 8)).or_else(whole).or_else(real)
    } else {
        None
    };
    number.map_or_else(|| Value::String(text.to_owned()), Value::Number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let found = json(text).unwrap_or_else(|mistake| mistake.to_string());
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn scalars_have_the_types_of_the_core_schema() {
        check("[1, -2, +3, 0x1f, 0o17, 1.5, 1e3, .5]", "[1,-2,3,31,15,1.5,1000.0,0.5]");
        check(
            "[true, False, ~, null, '', \"1\", yes, 1.2.3, -a, 5m, 1_000]",
            r#"[true,false,null,null,"","1","yes","1.2.3","-a","5m","1_000"]"#,
        );
        check("a: |\n  x\n  y\nb: 18446744073709551615\n", r#"{"a":"x\ny\n","b":18446744073709551615}"#);
    }

    #[test]
    fn aliases_are_followed_and_bounded() {
        check("a: &x {k: 1}\nb: *x", r#"{"a":{"k":1},"b":{"k":1}}"#);
        let mut bomb = "a0: &a0 [1,1,1,1,1,1,1,1,1,1]\n".to_owned();
        for level in 1..8 {
            let below = format!("*a{}", level - 1);
            bomb += &format!("a{level}: &a{level} [{}]\n", vec![below; 10].join(","));
        }
        assert!(json(&bomb).unwrap_err().reason.contains("1000000 values"));
        assert!(json(&"[".repeat(101)).unwrap_err().reason.contains("inside each other"));
        assert!(json(&"[".repeat(100_000)).is_err());
        check("&a [*a]", "1:5: an alias to itself");
    }

    #[test]
    fn mistakes_have_a_place() {
        check("a: 1\na: 2", "2:4: 'a' is there twice");
        check("[1]: 2", "1:3: a key that is not a text");
        check("a: !!int 1", "1:4: tags are not understood here");
        check("a: 1\n---\nb: 2", "2:1: a second document: a file has one definition");
        assert_eq!(json("a: [1\nb: 2").unwrap_err().line, 2);
        check("", "null");
    }
}
