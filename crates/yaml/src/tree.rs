//! Reader: tokens to nodes, with the grammar, anchors and aliases, merge keys, and the bounds.

mod aliases;
mod collections;
mod directives;

use std::rc::Rc;

use super::error::{Error, Problem};
use super::node::{Content, Node};
use super::scan::{Mark, Scanner, Token};
use super::text::Text;
use aliases::{Anchors, BuiltNode};
use directives::Directives;

/// Most bytes of a text.
const MAX_BYTES: usize = 256 << 20;
/// Most nodes in a text. A limit has nine, so a file may have 300,000 limits. Nodes with the
/// shortest texts take 1 GiB of memory.
const MAX_NODES: usize = 3_000_000;
/// Most nodes that all aliases of a text stand for, with nested aliases followed. An alias to a
/// long scalar counts as one more node for each 64 bytes, because callers copy it. So the copies of
/// one text have at most 64 MB.
const MAX_ALIASED: usize = 1_000_000;

/// Notation of a scalar: plain, in quotes, or with a tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScalarStyle<'a> {
    /// The scalar has no quotes and no tag, or is left out: its text decides the type.
    Plain,
    /// The scalar is in quotes or in a block: it is a text.
    Quoted,
    /// The scalar has a tag, such as `tag:yaml.org,2002:int` for `!!int`, or `!mine`.
    Tagged(&'a str),
}

/// Types of scalars.
pub trait Schema {
    /// Scalar with its type.
    type Scalar;

    /// Converts a scalar.
    ///
    /// # Errors
    /// The message says what is wrong with the scalar.
    fn scalar(text: String, form: ScalarStyle<'_>) -> Result<Self::Scalar, String>;

    /// Checks the tag of a list or map. The tag has no other effect.
    ///
    /// # Errors
    /// The tag is unknown.
    fn collection_tag(_tag: &str) -> Result<(), String> {
        Ok(())
    }
}

/// First document of a text.
#[derive(Debug)]
pub struct Document<S> {
    /// Root node. `None` if the text has no document.
    pub root: Option<Node<S>>,
    /// Position of the text after the document, if there is any. yaml.v2 never reads it, so it need
    /// not be YAML.
    pub rest: Option<super::Position>,
}

/// Reads the first document of a text, in UTF-8 or UTF-16, with at most `max_depth` nested lists
/// and maps.
///
/// Time and memory are linear in the size of the text, and the stack in `max_depth`.
///
/// # Errors
/// The first reason why the document cannot be read.
pub fn parse<S: Schema>(bytes: &[u8], max_depth: usize) -> Result<Document<S::Scalar>, Error> {
    let text = Text::decode(within_bound(bytes)?);
    DocumentReader::<S>::new(&text, max_depth).document()
}

/// Returns the keys of the map at the top of the first document, as far as it can be read.
#[must_use]
pub fn top_level_keys(bytes: &[u8]) -> Vec<String> {
    struct KeySchema;
    impl Schema for KeySchema {
        type Scalar = String;

        fn scalar(text: String, _: ScalarStyle<'_>) -> Result<String, String> {
            Ok(text)
        }
    }
    // The stack of a thread allows this depth. A deeper document ends the list early.
    const MAX_DEPTH: usize = 200;
    let Ok(bytes) = within_bound(bytes) else {
        return Vec::new();
    };
    let text = Text::decode(bytes);
    let mut reader = DocumentReader::<KeySchema>::new(&text, MAX_DEPTH);
    // An error ends the document. The names before it are known.
    let _ = reader.document();
    let names = reader.outer_keys.iter().filter_map(|key| match &**key {
        Content::Scalar(name) => Some(name.clone()),
        _ => None,
    });
    names.collect()
}

fn within_bound(bytes: &[u8]) -> Result<&[u8], Error> {
    if bytes.len() > MAX_BYTES {
        return Err(Mark::default().refuse(Problem::TooLong { max: MAX_BYTES }));
    }
    Ok(bytes)
}

/// Context of a node, which decides whether it may be a block collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NodeContext {
    Flow,
    Block,
    /// The node is a key or value of a block map, where the dashes of a list may stand below the
    /// key.
    BlockPair,
}

#[derive(Debug)]
struct DocumentReader<'t, S: Schema> {
    scanner: Scanner<'t>,
    directives: Directives,
    anchors: Anchors<S::Scalar>,
    depth: usize,
    max_depth: usize,
    nodes: usize,
    outer_keys: Vec<Rc<Content<S::Scalar>>>,
}

/// Anchor and tag before a node.
#[derive(Debug, Default)]
struct Properties {
    at: Option<Mark>,
    anchor: Option<String>,
    tag: Option<String>,
}

impl<'t, S: Schema> DocumentReader<'t, S> {
    fn new(text: &'t Text<'_>, max_depth: usize) -> Self {
        Self {
            scanner: Scanner::new(text),
            directives: Directives::default(),
            anchors: Anchors::default(),
            depth: 0,
            max_depth,
            nodes: 0,
            outer_keys: Vec::new(),
        }
    }

    fn document(&mut self) -> Result<Document<S::Scalar>, Error> {
        let root = match self.scanner.peek()?.1 {
            Token::End => {
                return Ok(Document {
                    root: None,
                    rest: None,
                });
            }
            Token::Version { .. } | Token::TagDirective { .. } | Token::DocumentStart => {
                self.directives.read(&mut self.scanner)?;
                self.content()?
            }
            _ => self.node(NodeContext::Block)?,
        };
        let (mark, token) = self.scanner.peek()?;
        let rest = match token {
            Token::End => None,
            Token::DocumentEnd => {
                self.scanner.advance();
                // The rest is not part of the document, and need not be YAML.
                match self.scanner.peek() {
                    Ok((_, Token::End)) => None,
                    Ok((mark, _)) => Some(mark),
                    Err(_) => Some(mark),
                }
            }
            _ => Some(mark),
        };
        Ok(Document {
            root: Some(root.node),
            rest: rest.map(Mark::position),
        })
    }

    /// Reads the node after `---`.
    fn content(&mut self) -> Result<BuiltNode<S::Scalar>, Error> {
        let (mark, token) = self.scanner.peek()?;
        match token {
            Token::Version { .. }
            | Token::TagDirective { .. }
            | Token::DocumentStart
            | Token::DocumentEnd
            | Token::End => self.empty(mark),
            _ => self.node(NodeContext::Block),
        }
    }

    fn node(&mut self, node_context: NodeContext) -> Result<BuiltNode<S::Scalar>, Error> {
        if let (mark, Token::Alias(_)) = self.scanner.peek()? {
            return self.alias(mark);
        }
        let properties = self.properties()?;
        let (mark, token) = self.scanner.peek()?;
        match token {
            Token::Scalar { is_plain, .. } => {
                let form = if *is_plain {
                    ScalarStyle::Plain
                } else {
                    ScalarStyle::Quoted
                };
                let Token::Scalar { text, .. } = self.scanner.advance() else {
                    return self.empty(mark);
                };
                self.scalar(mark, properties, text, form)
            }
            Token::BlockEntry if node_context == NodeContext::BlockPair => {
                self.collection(mark, properties, Self::list_below_key)
            }
            Token::FlowList => self.collection(mark, properties, Self::flow_list),
            Token::FlowMap => self.collection(mark, properties, Self::flow_map),
            Token::BlockList if node_context != NodeContext::Flow => {
                self.collection(mark, properties, Self::block_list)
            }
            Token::BlockMap if node_context != NodeContext::Flow => {
                self.collection(mark, properties, Self::block_map)
            }
            _ => match properties.at {
                Some(at) => self.scalar(at, properties, String::new(), ScalarStyle::Plain),
                None => Err(mark.error("did not find expected node content")),
            },
        }
    }

    /// Reads an anchor and a tag, in either order.
    fn properties(&mut self) -> Result<Properties, Error> {
        let mut properties = Properties::default();
        loop {
            let (mark, token) = self.scanner.peek()?;
            let is_next = match token {
                Token::Anchor(_) => properties.anchor.is_none(),
                Token::Tag { .. } => properties.tag.is_none(),
                _ => false,
            };
            if !is_next {
                return Ok(properties);
            }
            properties.at.get_or_insert(mark);
            match self.scanner.advance() {
                Token::Anchor(name) => properties.anchor = Some(name),
                Token::Tag { handle, suffix } => {
                    properties.tag = Some(self.directives.tag(mark, &handle, suffix)?)
                }
                _ => return Ok(properties),
            }
        }
    }

    /// Makes the node of a value that is left out.
    fn empty(&mut self, mark: Mark) -> Result<BuiltNode<S::Scalar>, Error> {
        let properties = Properties::default();
        self.scalar(mark, properties, String::new(), ScalarStyle::Plain)
    }

    fn scalar(
        &mut self,
        mark: Mark,
        properties: Properties,
        text: String,
        form: ScalarStyle<'_>,
    ) -> Result<BuiltNode<S::Scalar>, Error> {
        self.count_node(mark)?;
        let form = properties.tag.as_deref().map_or(form, ScalarStyle::Tagged);
        let is_merge_key = text == "<<"
            && matches!(
                form,
                ScalarStyle::Plain | ScalarStyle::Tagged("!" | "tag:yaml.org,2002:merge")
            );
        let size = aliases::scalar_size(&text);
        // An error in a tag is reported at the position of the tag.
        let start = properties.at.unwrap_or(mark);
        let scalar = S::scalar(text, form);
        let scalar = scalar.map_err(|problem| start.refuse(Problem::Schema(problem)))?;
        let node = Node {
            at: mark.position(),
            content: Rc::new(Content::Scalar(scalar)),
        };
        let built = BuiltNode {
            node,
            size,
            height: 0,
            is_merge_key,
        };
        self.anchors.insert(properties.anchor, &built);
        Ok(built)
    }

    /// Counts a node of the text.
    fn count_node(&mut self, mark: Mark) -> Result<(), Error> {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err(mark.refuse(Problem::TooMany { max: MAX_NODES }));
        }
        Ok(())
    }

    /// Refuses `levels` further nested lists and maps if that is too deep.
    fn check_depth(&self, mark: Mark, levels: usize) -> Result<(), Error> {
        if self.depth + levels > self.max_depth {
            return Err(mark.refuse(Problem::TooDeep {
                max: self.max_depth,
            }));
        }
        Ok(())
    }

    fn alias(&mut self, mark: Mark) -> Result<BuiltNode<S::Scalar>, Error> {
        let Token::Alias(name) = self.scanner.advance() else {
            return self.empty(mark);
        };
        let found = self.anchors.follow(&name);
        let found = found.map_err(|problem| mark.refuse(problem))?;
        self.count_node(mark)?;
        self.check_depth(mark, found.height)?;
        let node = Node {
            at: mark.position(),
            content: found.node.content,
        };
        Ok(BuiltNode { node, ..found })
    }
}
