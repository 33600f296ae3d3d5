//! Reads the first YAML document of a file into a tree of nodes: follows anchors and merge keys, within bounds.

use std::collections::HashMap;
use std::rc::Rc;

use saphyr_parser::{Event, Marker, Parser, ScanError, Span};

use super::node::{Content, Node, Pair, Position};
use super::problem::Problem;
use super::scalar::Scalar;

/// The most lists and maps inside each other. A descriptor needs two, so that 100 levels of descriptors are allowed.
const MAX_DEPTH: usize = 200;
/// The most nodes of one file, where every alias counts as all nodes that it stands for. A file may have about 100,000
/// descriptors, and a short file cannot use aliases to take all memory.
const MAX_NODES: usize = 1_000_000;
/// An alias to a long text counts as one more node for each of these bytes, because every use of it is a copy. With
/// [`MAX_NODES`], the copies of one file have at most 64 MB.
const ALIAS_BYTES: usize = 64;

/// Why a document cannot be read, and the position.
pub(super) type DocumentError = (Position, Problem);

/// Reads the first document of a file. Returns `None` when the file has no document.
///
/// Time and memory are linear in the size of the text up to [`MAX_NODES`], and the stack is bounded by [`MAX_DEPTH`].
///
/// # Errors
/// The first reason why the document cannot be read.
pub(super) fn parse(text: &[u8]) -> Result<Option<Rc<Node>>, DocumentError> {
    let text = std::str::from_utf8(text).map_err(|error| not_utf8(text, error.valid_up_to()))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut builder = Builder::default();
    let mut events = Parser::new_from_str(text);
    while let Some((event, span)) = events.next_event().transpose().map_err(|error| syntax_error(text, &error))? {
        if matches!(event, Event::DocumentEnd) {
            // Other documents are ignored, as in the reference. Anything else after the first one is an error.
            events.next_event().transpose().map_err(|error| syntax_error(text, &error))?;
            break;
        }
        builder.event(event, span)?;
    }
    Ok(builder.root)
}

fn syntax_error(text: &str, error: &ScanError) -> DocumentError {
    // Drop the context at the start, such as "while scanning a block scalar, ": the position says as much.
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

fn not_utf8(text: &[u8], valid_up_to: usize) -> DocumentError {
    let before = &text[..valid_up_to];
    let line_start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
    let column = String::from_utf8_lossy(&before[line_start..]).chars().count();
    (position(Marker::new(0, line, column)), Problem::NotUtf8)
}

/// A finished node, and the size of what an alias to it stands for.
#[derive(Debug, Clone)]
struct Built {
    node: Rc<Node>,
    /// The number of nodes that an alias counts as: this one and all below it, with aliases followed.
    nodes: usize,
    /// The number of levels of the node; 1 for a scalar.
    height: usize,
}

/// A list or map that has begun and not ended.
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
    /// By the parser's number of the anchor; `None` while the anchored node has not ended.
    anchors: HashMap<usize, Option<Built>>,
    nodes: usize,
    root: Option<Rc<Node>>,
}

impl Builder {
    fn event(&mut self, event: Event<'_>, span: Span) -> Result<(), DocumentError> {
        let at = position(span.start);
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let scalar = Scalar::read(text.into_owned(), style, tag.as_deref());
                let scalar = scalar.map_err(|problem| (at, problem))?;
                let nodes = 1 + scalar.text.len() / ALIAS_BYTES;
                self.spend(at, 1)?;
                let node = Rc::new(Node { at, content: Content::Scalar(scalar) });
                self.finish(anchor, Built { node, nodes, height: 1 })
            }
            Event::SequenceStart(anchor, _) => self.start(at, anchor, Collection::List(Vec::new())),
            Event::MappingStart(anchor, _) => self.start(at, anchor, Collection::Map(Vec::new(), None)),
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::Alias(anchor) => self.alias(at, anchor),
            _ => Ok(()),
        }
    }

    fn alias(&mut self, at: Position, anchor: usize) -> Result<(), DocumentError> {
        let Some(Some(built)) = self.anchors.get(&anchor).cloned() else {
            return Err((at, Problem::Syntax("anchor contains itself".to_owned())));
        };
        self.spend(at, built.nodes)?;
        if self.open.len() + built.height > MAX_DEPTH {
            return Err((at, Problem::TooDeep { max: MAX_DEPTH }));
        }
        self.finish(0, built)
    }

    /// Counts nodes against [`MAX_NODES`].
    fn spend(&mut self, at: Position, nodes: usize) -> Result<(), DocumentError> {
        self.nodes = self.nodes.saturating_add(nodes);
        if self.nodes > MAX_NODES { Err((at, Problem::TooLarge { max: MAX_NODES })) } else { Ok(()) }
    }

    fn start(&mut self, at: Position, anchor: usize, collection: Collection) -> Result<(), DocumentError> {
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

    fn end(&mut self) -> Result<(), DocumentError> {
        let Some(Open { at, anchor, collection, nodes, height }) = self.open.pop() else { return Ok(()) };
        let content = match collection {
            Collection::List(items) => Content::List(items),
            Collection::Map(pairs, _) => Content::Map(pairs),
        };
        self.finish(anchor, Built { node: Rc::new(Node { at, content }), nodes, height })
    }

    /// Adds a finished node to the list or map around it.
    fn finish(&mut self, anchor: usize, built: Built) -> Result<(), DocumentError> {
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

fn add_pair(pairs: &mut Vec<Pair>, key: &Rc<Node>, value: Rc<Node>) -> Result<(), DocumentError> {
    let Content::Scalar(name) = &key.content else {
        return Err((key.at, Problem::Syntax(format!("invalid map key: {key}"))));
    };
    // A quoted "<<" is not a merge key in YAML. It need not be told apart, because it is an unknown key.
    if name.text == "<<" {
        return merge(pairs, key.at, &value);
    }
    pairs.push(Pair { at: key.at, key: name.clone(), value });
    Ok(())
}

/// Adds the pairs of a merge key in its place. Of two pairs with the same key, the later one wins.
fn merge(pairs: &mut Vec<Pair>, at: Position, value: &Node) -> Result<(), DocumentError> {
    let error = || (at, Problem::Syntax("map merge requires map or sequence of maps as the value".to_owned()));
    match &value.content {
        Content::Map(merged) => pairs.extend(merged.iter().cloned()),
        // The first of several maps wins, so that it is added last.
        Content::List(maps) => {
            for map in maps.iter().rev() {
                let Content::Map(merged) = &map.content else { return Err(error()) };
                pairs.extend(merged.iter().cloned());
            }
        }
        Content::Scalar(_) => return Err(error()),
    }
    Ok(())
}
