//! From the events of a YAML parser to a tree: anchors and aliases, limits, and the types of the core schema.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use saphyr_parser::{Event, ScalarStyle};
use serde_json::value::RawValue;

use super::tree::{Node, Place, Value};

/// Most values in a file, with aliases followed. This bounds what a small file of nested aliases can ask for.
const MAX_NODES: usize = 1_000_000;
/// An alias to a long text counts as one more value for each of these bytes, because every use of it is a copy in the JSON. With
/// [`MAX_NODES`], the copies of one file have at most 64 MB.
const ALIAS_BYTES: usize = 64;
/// Greatest depth of lists and maps: the same as the server allows in JSON.
const MAX_DEPTH: usize = 100;

/// Makes a tree of the events of a parser.
#[derive(Debug, Default)]
pub(super) struct Reader {
    open: Vec<Open>,
    anchors: HashMap<usize, Node>,
    size: usize,
    root: Option<Node>,
}

/// A list or map whose end has not come yet.
#[derive(Debug)]
struct Open {
    anchor: usize,
    place: Place,
    value: Value,
    /// As in [`Node`].
    size: usize,
    height: usize,
    /// In a map, the key whose value comes next, and all keys so far.
    key: Option<(String, Place)>,
    names: HashSet<String>,
}

impl Reader {
    /// What was read; None when there was nothing.
    pub(super) fn root(self) -> Option<Node> {
        self.root
    }

    /// Takes the next event of the parser.
    pub(super) fn event(&mut self, event: Event<'_>, place: Place) -> Result<(), String> {
        match event {
            Event::Scalar(_, _, _, Some(_)) => Err("tags are not understood here".to_owned()),
            Event::Scalar(text, style, anchor, None) => {
                let json = if style == ScalarStyle::Plain { plain(&text) } else { quoted(&text) };
                let size = 1 + json.len() / ALIAS_BYTES;
                self.spend(1)?;
                self.finish(anchor, Node { place, value: Rc::new(Value::Scalar(json)), size, height: 0 })
            }
            Event::SequenceStart(anchor, _) => self.start(anchor, place, Value::List(Vec::new())),
            Event::MappingStart(anchor, _) => self.start(anchor, place, Value::Map(Vec::new())),
            Event::SequenceEnd | Event::MappingEnd => {
                let Open { anchor, place, value, size, height, .. } =
                    self.open.pop().expect("the parser pairs starts and ends");
                self.finish(anchor, Node { place, value: Rc::new(value), size, height: height + 1 })
            }
            Event::Alias(anchor) => {
                let node = self.anchors.get(&anchor).cloned().ok_or("an alias to itself")?;
                self.spend(node.size)?;
                self.descend(node.height)?;
                self.finish(0, Node { place, ..node })
            }
            _ => Ok(()),
        }
    }

    fn spend(&mut self, nodes: usize) -> Result<(), String> {
        self.size += nodes;
        if self.size > MAX_NODES { Err(format!("more than {MAX_NODES} values")) } else { Ok(()) }
    }

    /// Refuses a value with `levels` lists and maps inside each other where this would be too deep.
    fn descend(&self, levels: usize) -> Result<(), String> {
        if self.open.len() + levels > MAX_DEPTH {
            return Err(format!("more than {MAX_DEPTH} lists and maps inside each other"));
        }
        Ok(())
    }

    fn start(&mut self, anchor: usize, place: Place, value: Value) -> Result<(), String> {
        self.descend(1)?;
        self.open.push(Open { anchor, place, value, size: 1, height: 0, key: None, names: HashSet::new() });
        self.spend(1)
    }

    fn finish(&mut self, anchor: usize, node: Node) -> Result<(), String> {
        if anchor > 0 {
            self.anchors.insert(anchor, node.clone());
        }
        let Some(open) = self.open.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        open.size += node.size;
        open.height = open.height.max(node.height);
        match &mut open.value {
            Value::List(items) => items.push(node),
            Value::Map(pairs) => match open.key.take() {
                Some((name, place)) => pairs.push((name, place, node)),
                None => {
                    let name = name(&node)?;
                    if !open.names.insert(name.clone()) {
                        return Err(format!("'{name}' is there twice"));
                    }
                    open.key = Some((name, node.place));
                }
            },
            Value::Scalar(_) => {}
        }
        Ok(())
    }
}

/// A key, which JSON has only as text.
fn name(node: &Node) -> Result<String, String> {
    match &*node.value {
        Value::Scalar(json) if json.starts_with('"') => Ok(serde_json::from_str(json).expect("it was written here")),
        Value::Scalar(json) => Ok(json.clone()),
        _ => Err("a key that is not a text".to_owned()),
    }
}

/// A text as JSON.
pub(super) fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("a text is JSON")
}

/// What a scalar without quotes means in the core schema, as JSON. Numbers that JSON can have stay as they are written.
fn plain(text: &str) -> String {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return "null".to_owned(),
        "true" | "True" | "TRUE" => return "true".to_owned(),
        "false" | "False" | "FALSE" => return "false".to_owned(),
        _ => {}
    }
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return quoted(text);
    }
    if serde_json::from_str::<&RawValue>(text).is_ok() {
        return text.to_owned();
    }
    let radix = |prefix, radix| i64::from_str_radix(text.strip_prefix(prefix)?, radix).ok();
    let whole = radix("0x", 16).or_else(|| radix("0o", 8)).or_else(|| text.parse().ok()).map(|whole| whole.to_string());
    let real = || text.parse::<f64>().ok().filter(|real| real.is_finite()).map(|real| format!("{real:?}"));
    whole.or_else(real).unwrap_or_else(|| quoted(text))
}
