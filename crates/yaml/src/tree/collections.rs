//! Lists and maps.

use std::rc::Rc;

use super::aliases::BuiltNode;
use super::{DocumentReader, NodeContext, Properties, Schema};
use crate::error::{Error, Problem};
use crate::node::{Content, Node, Pair};
use crate::scan::{Mark, Token};

/// List or map that has begun.
#[derive(Debug)]
pub(super) struct OpenCollection<S> {
    size: usize,
    height: usize,
    content: Content<S>,
}

impl<S> OpenCollection<S> {
    fn list() -> Self {
        Self::new(Content::List(Vec::new()))
    }

    fn map() -> Self {
        Self::new(Content::Map(Vec::new()))
    }

    fn new(content: Content<S>) -> Self {
        Self {
            size: 1,
            height: 0,
            content,
        }
    }

    fn count(&mut self, built: &BuiltNode<S>) {
        self.size = self.size.saturating_add(built.size);
        self.height = self.height.max(built.height);
    }

    fn add_item(&mut self, item: BuiltNode<S>) {
        self.count(&item);
        if let Content::List(items) = &mut self.content {
            items.push(item.node);
        }
    }

    fn add_pair(&mut self, key: BuiltNode<S>, value: BuiltNode<S>) -> Result<(), Error> {
        self.count(&key);
        self.count(&value);
        let Content::Map(pairs) = &mut self.content else {
            return Ok(());
        };
        let at = key.node.at;
        if key.is_merge_key {
            return merge(pairs, &value.node).map_err(|problem| Error { at, problem });
        }
        if !matches!(*key.node.content, Content::Scalar(_)) {
            return Err(Error {
                at,
                problem: Problem::KeyIsNoScalar,
            });
        }
        pairs.push(Pair {
            at,
            key: key.node.content,
            value: value.node,
            merged: false,
        });
        Ok(())
    }
}

/// Adds the pairs of a merge key in its place. Of two pairs with one key, the later one counts.
fn merge<S>(pairs: &mut Vec<Pair<S>>, value: &Node<S>) -> Result<(), Problem> {
    let mut add = |node: &Node<S>| {
        let Content::Map(merged) = &*node.content else {
            return Err(Problem::Merge);
        };
        pairs.extend(merged.iter().map(|pair| Pair {
            at: pair.at,
            key: Rc::clone(&pair.key),
            value: pair.value.clone(),
            merged: true,
        }));
        Ok(())
    };
    match &*value.content {
        // The first of several maps wins, so it is added last.
        Content::List(maps) => maps.iter().rev().try_for_each(add),
        _ => add(value),
    }
}

type ReadCollection<'t, S> =
    fn(&mut DocumentReader<'t, S>) -> Result<OpenCollection<<S as Schema>::Scalar>, Error>;

impl<'t, S: Schema> DocumentReader<'t, S> {
    /// Reads a list or map within the bounds.
    pub(super) fn collection(
        &mut self,
        mark: Mark,
        properties: Properties,
        read: ReadCollection<'t, S>,
    ) -> Result<BuiltNode<S::Scalar>, Error> {
        self.count_node(mark)?;
        self.check_depth(mark, 1)?;
        if let Some(tag) = &properties.tag {
            let start = properties.at.unwrap_or(mark);
            S::collection_tag(tag).map_err(|problem| start.refuse(Problem::Schema(problem)))?;
        }
        if let Some(anchor) = &properties.anchor {
            self.anchors.begin(anchor);
        }
        self.depth += 1;
        let read = read(self)?;
        self.depth -= 1;
        let node = Node {
            at: mark.position(),
            content: Rc::new(read.content),
        };
        let built = BuiltNode {
            node,
            size: read.size,
            height: read.height + 1,
            is_merge_key: false,
        };
        self.anchors.insert(properties.anchor, &built);
        Ok(built)
    }

    /// Takes a token, and returns its position.
    fn take_token(&mut self) -> Result<Mark, Error> {
        let mark = self.scanner.peek()?.0;
        self.scanner.advance();
        Ok(mark)
    }

    /// Takes an indicator (`-`, `?`, `:`) and reads the node after it. The node is empty if the
    /// next token ends it.
    fn node_after_indicator(
        &mut self,
        node_context: NodeContext,
        ends: &[Token],
    ) -> Result<BuiltNode<S::Scalar>, Error> {
        let indicator = self.take_token()?;
        if ends.contains(self.scanner.peek()?.1) {
            self.empty(indicator)
        } else {
            self.node(node_context)
        }
    }

    /// Reads a value after its colon. Without a colon it is empty.
    fn value(
        &mut self,
        node_context: NodeContext,
        ends: &[Token],
    ) -> Result<BuiltNode<S::Scalar>, Error> {
        let (mark, token) = self.scanner.peek()?;
        if *token != Token::Value {
            return self.empty(mark);
        }
        self.node_after_indicator(node_context, ends)
    }

    pub(super) fn block_list(&mut self) -> Result<OpenCollection<S::Scalar>, Error> {
        let mut list = OpenCollection::list();
        self.take_token()?;
        loop {
            let (mark, token) = self.scanner.peek()?;
            match token {
                Token::BlockEntry => {}
                Token::BlockEnd => break,
                _ => return Err(mark.error("did not find expected '-' indicator")),
            }
            let ends = [Token::BlockEntry, Token::BlockEnd];
            list.add_item(self.node_after_indicator(NodeContext::Block, &ends)?);
        }
        self.take_token()?;
        Ok(list)
    }

    /// Reads a list whose dashes stand below the key of a map. It ends where the next key begins.
    pub(super) fn list_below_key(&mut self) -> Result<OpenCollection<S::Scalar>, Error> {
        let mut list = OpenCollection::list();
        while *self.scanner.peek()?.1 == Token::BlockEntry {
            let ends = [Token::BlockEntry, Token::Key, Token::Value, Token::BlockEnd];
            list.add_item(self.node_after_indicator(NodeContext::Block, &ends)?);
        }
        Ok(list)
    }

    pub(super) fn block_map(&mut self) -> Result<OpenCollection<S::Scalar>, Error> {
        let mut map = OpenCollection::map();
        self.take_token()?;
        loop {
            let (mark, token) = self.scanner.peek()?;
            match token {
                Token::Key => {}
                Token::BlockEnd => break,
                _ => return Err(mark.error("did not find expected key")),
            }
            let ends = [Token::Key, Token::Value, Token::BlockEnd];
            let key = self.node_after_indicator(NodeContext::BlockPair, &ends)?;
            self.keep_outer_key(&key);
            let value = self.value(NodeContext::BlockPair, &ends)?;
            map.add_pair(key, value)?;
        }
        self.take_token()?;
        Ok(map)
    }

    pub(super) fn flow_list(&mut self) -> Result<OpenCollection<S::Scalar>, Error> {
        let mut list = OpenCollection::list();
        self.take_token()?;
        let mut is_first = true;
        while self.has_entry(
            &mut is_first,
            Token::FlowListEnd,
            "did not find expected ',' or ']'",
        )? {
            let (mark, token) = self.scanner.peek()?;
            let item = match token {
                Token::Key => self.collection(mark, Properties::default(), Self::single_pair)?,
                _ => self.node(NodeContext::Flow)?,
            };
            list.add_item(item);
        }
        Ok(list)
    }

    /// Reads a map of one pair that stands in a list without braces.
    fn single_pair(&mut self) -> Result<OpenCollection<S::Scalar>, Error> {
        let mut map = OpenCollection::map();
        let ends = [Token::Value, Token::FlowEntry, Token::FlowListEnd];
        let key = self.node_after_indicator(NodeContext::Flow, &ends)?;
        let value = self.value(NodeContext::Flow, &ends[1..])?;
        map.add_pair(key, value)?;
        Ok(map)
    }

    pub(super) fn flow_map(&mut self) -> Result<OpenCollection<S::Scalar>, Error> {
        let mut map = OpenCollection::map();
        self.take_token()?;
        let mut is_first = true;
        while self.has_entry(
            &mut is_first,
            Token::FlowMapEnd,
            "did not find expected ',' or '}'",
        )? {
            if *self.scanner.peek()?.1 == Token::Key {
                let ends = [Token::Value, Token::FlowEntry, Token::FlowMapEnd];
                let key = self.node_after_indicator(NodeContext::Flow, &ends)?;
                self.keep_outer_key(&key);
                let value = self.value(NodeContext::Flow, &ends[1..])?;
                map.add_pair(key, value)?;
            } else {
                let key = self.node(NodeContext::Flow)?;
                let mark = self.scanner.peek()?.0;
                map.add_pair(key, self.empty(mark)?)?;
            }
        }
        Ok(map)
    }

    /// Takes the comma before the next entry, or the end of the collection. Returns whether there
    /// is an entry.
    fn has_entry(
        &mut self,
        is_first: &mut bool,
        end: Token,
        problem: &'static str,
    ) -> Result<bool, Error> {
        let (mark, token) = self.scanner.peek()?;
        if *token != end && !std::mem::take(is_first) {
            if *token != Token::FlowEntry {
                return Err(mark.error(problem));
            }
            self.take_token()?;
        }
        let has_entry = *self.scanner.peek()?.1 != end;
        if !has_entry {
            self.take_token()?;
        }
        Ok(has_entry)
    }

    /// Keeps the key if its map is the outermost node.
    fn keep_outer_key(&mut self, key: &BuiltNode<S::Scalar>) {
        if self.depth == 1 {
            self.outer_keys.push(Rc::clone(&key.node.content));
        }
    }
}
