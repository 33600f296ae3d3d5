//! A YAML document as a tree whose nodes know their line and column.

use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Span, Tag};

use super::problem::Problem;
use super::scalar::Scalar;

/// Lists and maps inside each other. A descriptor costs two, so this is a hundred levels of descriptors.
const MAX_DEPTH: usize = 200;
/// Nodes of one file after aliases are followed: some 100,000 descriptors, and no file of a few lines can ask for more.
const MAX_NODES: usize = 1_000_000;

/// A place in a file, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Position {
    pub(super) line: u32,
    pub(super) column: u32,
}

/// A value and where it starts.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) at: Position,
    pub(super) content: Content,
}

#[derive(Debug)]
pub(super) enum Content {
    Scalar(Text),
    List(Vec<Rc<Node>>),
    /// Pairs in the order of the file, merge keys already followed. Keys may repeat.
    Map(Vec<Pair>),
}

/// A scalar: what was written, and what it means.
#[derive(Debug, Clone)]
pub(super) struct Text {
    pub(super) text: String,
    pub(super) meaning: Scalar,
}

#[derive(Debug, Clone)]
pub(super) struct Pair {
    pub(super) at: Position,
    pub(super) key: Text,
    pub(super) value: Rc<Node>,
}

/// The first thing that is wrong with a document, and where.
pub(super) type Refusal = (Position, Problem);

/// Reads the first document of a file; none when there is no document.
///
/// Memory and time are bounded by the size of the text, whatever its aliases say; the stack by [`MAX_DEPTH`].
pub(super) fn parse(text: &[u8]) -> Result<Option<Rc<Node>>, Refusal> {
    let text = std::str::from_utf8(text).map_err(|error| not_utf8(text, error.valid_up_to()))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut builder = Builder::default();
    let mut events = Parser::new_from_str(text);
    while let Some((event, span)) = events.next_event().transpose().map_err(|error| refusal(text, &error))? {
        if matches!(event, Event::DocumentEnd) {
            // Further documents are not read, but what follows must be one: half a file must not be ignored in silence.
            events.next_event().transpose().map_err(|error| refusal(text, &error))?;
            break;
        }
        builder.event(event, span)?;
    }
    Ok(builder.root)
}

fn refusal(text: &str, error: &ScanError) -> Refusal {
    // The context ("while scanning ..") is dropped: the position says it.
    let problem = match error.info().rsplit(", ").next().unwrap_or_default() {
        "found unexpected end of stream" => {
            Problem::OpenQuote { last_line: text.bytes().filter(|byte| *byte == b'\n').count() + 1 }
        }
        "recursion limit exceeded" => Problem::TooDeep { max: MAX_DEPTH },
        info => Problem::Syntax(info.to_owned()),
    };
    (position(*error.marker()), problem)
}

fn position(marker: Marker) -> Position {
    let number = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
    Position { line: number(marker.line()), column: number(marker.col() + 1) }
}

fn not_utf8(text: &[u8], valid_up_to: usize) -> Refusal {
    let before = &text[..valid_up_to];
    let line_start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
    let column = String::from_utf8_lossy(&before[line_start..]).chars().count();
    (position(Marker::new(0, line, column)), Problem::NotUtf8)
}

/// A finished node, and what following an alias to it costs.
#[derive(Debug, Clone)]
struct Built {
    node: Rc<Node>,
    /// The node and all below it, aliases followed.
    nodes: usize,
    /// Levels from here down; 1 for a scalar.
    height: usize,
}

/// A list or map whose end has not come yet.
#[derive(Debug)]
struct Open {
    at: Position,
    anchor: usize,
    collection: Collection,
    nodes: usize,
    height: usize,
}

#[derive(Debug)]
enum Collection {
    List(Vec<Rc<Node>>),
    Map(Vec<Pair>, Option<Rc<Node>>),
}

#[derive(Debug, Default)]
struct Builder {
    open: Vec<Open>,
    /// None while the anchored node is still open.
    anchors: HashMap<usize, Option<Built>>,
    nodes: usize,
    root: Option<Rc<Node>>,
}

impl Builder {
    fn event(&mut self, event: Event<'_>, span: Span) -> Result<(), Refusal> {
        let at = position(span.start);
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let text = scalar(text.into_owned(), style, tag.as_deref()).map_err(|problem| (at, problem))?;
                let node = Rc::new(Node { at, content: Content::Scalar(text) });
                self.spend(at, 1)?;
                self.finish(anchor, Built { node, nodes: 1, height: 1 })
            }
            Event::SequenceStart(anchor, _) => self.start(at, anchor, Collection::List(Vec::new())),
            Event::MappingStart(anchor, _) => self.start(at, anchor, Collection::Map(Vec::new(), None)),
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::Alias(anchor) => match self.anchors.get(&anchor) {
                Some(Some(built)) => {
                    let built = built.clone();
                    self.spend(at, built.nodes)?;
                    if self.open.len() + built.height > MAX_DEPTH {
                        return Err((at, Problem::TooDeep { max: MAX_DEPTH }));
                    }
                    self.finish(0, built)
                }
                _ => Err((at, Problem::Syntax("anchor contains itself".to_owned()))),
            },
            _ => Ok(()),
        }
    }

    fn spend(&mut self, at: Position, nodes: usize) -> Result<(), Refusal> {
        self.nodes = self.nodes.saturating_add(nodes);
        if self.nodes > MAX_NODES { Err((at, Problem::TooLarge { max: MAX_NODES })) } else { Ok(()) }
    }

    fn start(&mut self, at: Position, anchor: usize, collection: Collection) -> Result<(), Refusal> {
        self.spend(at, 1)?;
        if self.open.len() >= MAX_DEPTH {
            return Err((at, Problem::TooDeep { max: MAX_DEPTH }));
        }
        if anchor != 0 {
            self.anchors.insert(anchor, None);
        }
        self.open.push(Open { at, anchor, collection, nodes: 1, height: 1 });
        Ok(())
    }

    fn end(&mut self) -> Result<(), Refusal> {
        let Some(Open { at, anchor, collection, nodes, height }) = self.open.pop() else { return Ok(()) };
        let content = match collection {
            Collection::List(items) => Content::List(items),
            Collection::Map(pairs, _) => Content::Map(pairs),
        };
        self.finish(anchor, Built { node: Rc::new(Node { at, content }), nodes, height })
    }

    /// Puts a finished node where it belongs.
    fn finish(&mut self, anchor: usize, built: Built) -> Result<(), Refusal> {
        if anchor != 0 {
            self.anchors.insert(anchor, Some(built.clone()));
        }
        let Some(parent) = self.open.last_mut() else {
            self.root = Some(built.node);
            return Ok(());
        };
        parent.nodes = parent.nodes.saturating_add(built.nodes);
        parent.height = parent.height.max(built.height + 1);
        match &mut parent.collection {
            Collection::List(items) => items.push(built.node),
            Collection::Map(pairs, key) => match key.take() {
                None => *key = Some(built.node),
                Some(key) => add_pair(pairs, &key, built.node)?,
            },
        }
        Ok(())
    }
}

fn scalar(text: String, style: ScalarStyle, tag: Option<&Tag>) -> Result<Text, Problem> {
    let meaning = match (tag, style) {
        (Some(tag), _) if tag.is_yaml_core_schema() => match Scalar::of_tagged(&tag.suffix, &text) {
            Some(meaning) => meaning,
            None => {
                let found = Scalar::of_plain(&text).tag();
                return Err(Problem::Syntax(format!("cannot decode {found} `{text}` as a !!{}", tag.suffix)));
            }
        },
        (None, ScalarStyle::Plain) => Scalar::of_plain(&text),
        _ => Scalar::Text,
    };
    Ok(Text { text, meaning })
}

fn add_pair(pairs: &mut Vec<Pair>, key: &Rc<Node>, value: Rc<Node>) -> Result<(), Refusal> {
    let Content::Scalar(text) = &key.content else {
        return Err((key.at, Problem::Syntax(format!("invalid map key: {key}"))));
    };
    // A quoted "<<" would be an unknown key anyway, so that telling it apart would help nobody.
    if text.text == "<<" {
        return merge(pairs, key.at, &value);
    }
    pairs.push(Pair { at: key.at, key: text.clone(), value });
    Ok(())
}

/// Follows a merge key where it stands: later pairs win over earlier ones, as everywhere in a map.
fn merge(pairs: &mut Vec<Pair>, at: Position, value: &Node) -> Result<(), Refusal> {
    let refusal = || (at, Problem::Syntax("map merge requires map or sequence of maps as the value".to_owned()));
    match &value.content {
        Content::Map(merged) => pairs.extend(merged.iter().cloned()),
        // Of several maps the first wins.
        Content::List(maps) => {
            for map in maps.iter().rev() {
                let Content::Map(merged) = &map.content else { return Err(refusal()) };
                pairs.extend(merged.iter().cloned());
            }
        }
        Content::Scalar(_) => return Err(refusal()),
    }
    Ok(())
}

impl fmt::Display for Text {
    /// Writes the value as the reference's language prints it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.meaning {
            Scalar::Null => f.write_str("<nil>"),
            Scalar::Bool(value) => write!(f, "{value}"),
            Scalar::Integer(value) => write!(f, "{value}"),
            Scalar::Unsigned(value) => write!(f, "{value}"),
            Scalar::Float(value) if value.is_nan() => f.write_str("NaN"),
            Scalar::Float(value) if value.is_infinite() => f.write_str(if value > 0.0 { "+Inf" } else { "-Inf" }),
            Scalar::Float(value) if value != 0.0 && !(1e-4..1e21).contains(&value.abs()) => write!(f, "{value:e}"),
            Scalar::Float(value) => write!(f, "{value}"),
            Scalar::Text => f.write_str(&self.text),
        }
    }
}

impl fmt::Display for Node {
    /// Writes the value as the reference's language prints it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.content {
            Content::Scalar(text) => write!(f, "{text}"),
            Content::List(items) => {
                f.write_str("[")?;
                for (index, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", if index == 0 { "" } else { " " })?;
                }
                f.write_str("]")
            }
            Content::Map(pairs) => {
                f.write_str("map[")?;
                for (index, pair) in pairs.iter().enumerate() {
                    write!(f, "{}{}:{}", if index == 0 { "" } else { " " }, pair.key, pair.value)?;
                }
                f.write_str("]")
            }
        }
    }
}
