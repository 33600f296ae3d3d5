//! From the events of a YAML parser to a tree: anchors and aliases, limits, and the types of the core schema.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use saphyr_parser::{Event, ScalarStyle};

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
            Event::Scalar(_, _, _, Some(_)) | Event::SequenceStart(_, Some(_)) | Event::MappingStart(_, Some(_)) => {
                Err("tags are not understood here".to_owned())
            }
            Event::Scalar(text, style, anchor, None) => {
                let json = if style == ScalarStyle::Plain { plain(&text)? } else { quoted(&text) };
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

/// What a scalar without quotes means in the core schema, as JSON. Numbers keep all of their digits.
fn plain(text: &str) -> Result<String, String> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Ok("null".to_owned()),
        "true" | "True" | "TRUE" => return Ok("true".to_owned()),
        "false" | "False" | "FALSE" => return Ok("false".to_owned()),
        _ => {}
    }
    if is_endless(text) {
        return Err(format!("{text} is a number that JSON does not have; in quotes it is a text"));
    }
    for (prefix, radix) in [("0x", 16), ("0o", 8)] {
        let digits = text.strip_prefix(prefix).filter(|digits| !digits.is_empty());
        if let Some(digits) = digits.filter(|digits| digits.chars().all(|digit| digit.is_digit(radix))) {
            let whole = u64::from_str_radix(digits, radix);
            return whole.map(|whole| whole.to_string()).map_err(|_| {
                format!("{text} is larger than {}; write it in decimal digits, or in quotes as a text", u64::MAX)
            });
        }
    }
    Ok(decimal(text).unwrap_or_else(|| quoted(text)))
}

/// Whether it is infinity, or not a number.
fn is_endless(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    matches!(unsigned, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN")
}

/// A decimal number as JSON writes it: without a plus, without zeros before it, and with a digit on both sides of its point.
fn decimal(text: &str) -> Option<String> {
    let (minus, unsigned) = match text.strip_prefix('-') {
        Some(unsigned) => ("-", unsigned),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    let (number, exponent) = unsigned.split_at(unsigned.find(['e', 'E']).unwrap_or(unsigned.len()));
    let (whole, fraction) = number.split_at(number.find('.').unwrap_or(number.len()));
    let (fraction, is_real) = fraction.strip_prefix('.').map_or(("", false), |fraction| (fraction, true));
    let power = exponent.get(1..).map(|power| power.strip_prefix(['-', '+']).unwrap_or(power));
    let is_power = power.is_none_or(|power| !power.is_empty() && is_digits(power));
    if (whole.is_empty() && fraction.is_empty()) || !is_digits(whole) || !is_digits(fraction) || !is_power {
        return None;
    }
    let whole = Some(whole.trim_start_matches('0')).filter(|whole| !whole.is_empty()).unwrap_or("0");
    let point = if is_real { "." } else { "" };
    let fraction = if is_real && fraction.is_empty() { "0" } else { fraction };
    Some([minus, whole, point, fraction, exponent].concat())
}

fn is_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}
