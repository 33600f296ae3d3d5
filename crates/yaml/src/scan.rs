//! Scanner: characters to tokens.
//!
//! A key is recognized only when the scanner reaches its colon. Tokens therefore wait in a queue,
//! and the scanner saves the positions where a key may have begun: one outside of flow collections,
//! and one for each open flow collection. A key has at most [`MAX_KEY`] characters in one line,
//! which also bounds the queue.

mod block_scalar;
mod cursor;
mod flow_scalar;
mod tags;

use std::collections::VecDeque;

use super::error::Error;
use super::text::Text;
use cursor::{Cursor, END, is_blank, is_blank_or_end};

pub(crate) use cursor::Mark;

/// Most characters from the beginning of a key without `?` to its colon.
const MAX_KEY: usize = 1024;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Token {
    End,
    /// `%YAML 1.1`.
    Version {
        major: u32,
        minor: u32,
    },
    /// `%TAG handle prefix`.
    TagDirective {
        handle: String,
        prefix: String,
    },
    DocumentStart,
    DocumentEnd,
    BlockList,
    BlockMap,
    /// End of a block list or map.
    BlockEnd,
    FlowList,
    FlowListEnd,
    FlowMap,
    FlowMapEnd,
    /// `-`.
    BlockEntry,
    /// `,`.
    FlowEntry,
    /// `?`, or the position where a key begins.
    Key,
    /// `:`.
    Value,
    Alias(String),
    Anchor(String),
    /// `handle` is empty for a tag that is written out, as in `!<tag>`.
    Tag {
        handle: String,
        suffix: String,
    },
    Scalar {
        text: String,
        is_plain: bool,
    },
}

/// Position where a key may have begun.
#[derive(Debug, Clone, Copy, Default)]
struct PossibleKey {
    is_possible: bool,
    /// Whether only a key can stand there.
    is_required: bool,
    /// Number of its first token, counted from the beginning of the text.
    token: usize,
    mark: Mark,
}

#[derive(Debug)]
pub(crate) struct Scanner<'t> {
    cursor: Cursor<'t>,
    /// Problem after the last valid character, if there is one.
    end: Option<super::error::Problem>,
    tokens: VecDeque<(Mark, Token)>,
    /// Number of tokens that have left the queue.
    taken_tokens: usize,
    /// Column of the innermost block collection; -1 outside of all.
    indent: isize,
    /// Columns of the block collections around that one.
    indents: Vec<isize>,
    /// Positions where a key may have begun: one outside of flow collections, and one for each open
    /// flow collection. Their token numbers ascend.
    keys: Vec<PossibleKey>,
    /// Whether a key may begin at the current position.
    key_allowed: bool,
    has_ended: bool,
}

impl<'t> Scanner<'t> {
    pub(crate) fn new(text: &'t Text<'_>) -> Self {
        Self {
            cursor: Cursor::new(&text.characters),
            end: text.end.clone(),
            tokens: VecDeque::new(),
            taken_tokens: 0,
            indent: -1,
            indents: Vec::new(),
            keys: vec![PossibleKey::default()],
            key_allowed: true,
            has_ended: false,
        }
    }

    /// Returns the next token, which stays in the queue.
    pub(crate) fn peek(&mut self) -> Result<(Mark, &Token), Error> {
        while !self.has_ended && self.needs_more()? {
            let result = self.fetch();
            match &self.end {
                Some(problem) if self.cursor.is_at_end() => {
                    return Err(self.cursor.mark.refuse(problem.clone()));
                }
                _ => result?,
            }
        }
        let first = self.tokens.front();
        let (mark, token) = first.expect("the end of the text is a token that is not taken");
        Ok((*mark, token))
    }

    /// Takes the token that `peek` returned. The end of the text stays in the queue.
    pub(crate) fn advance(&mut self) -> Token {
        match self.tokens.front() {
            None | Some((_, Token::End)) => Token::End,
            Some(_) => {
                self.taken_tokens += 1;
                self.tokens
                    .pop_front()
                    .map_or(Token::End, |(_, token)| token)
            }
        }
    }

    fn is_in_flow(&self) -> bool {
        self.keys.len() > 1
    }

    /// Whether the first token of the queue may turn out to begin a key.
    fn needs_more(&mut self) -> Result<bool, Error> {
        if self.tokens.is_empty() {
            return Ok(true);
        }
        let first = self
            .keys
            .partition_point(|key| key.token < self.taken_tokens);
        let found = self.keys[first..]
            .iter()
            .take_while(|key| key.token == self.taken_tokens)
            .position(|key| key.is_possible);
        match found {
            None => Ok(false),
            Some(place) => self.is_still_possible(first + place),
        }
    }

    fn is_still_possible(&mut self, place: usize) -> Result<bool, Error> {
        let here = self.cursor.mark;
        let key = &mut self.keys[place];
        if key.is_possible
            && (key.mark.line < here.line || key.mark.characters + MAX_KEY < here.characters)
        {
            if key.is_required {
                return Err(key.mark.error("could not find expected ':'"));
            }
            key.is_possible = false;
        }
        Ok(key.is_possible)
    }

    /// Saves the current position as one where a key may begin.
    fn save_key(&mut self) -> Result<(), Error> {
        if self.key_allowed {
            self.drop_key()?;
            let is_required = !self.is_in_flow() && self.indent == self.column();
            let token = self.taken_tokens + self.tokens.len();
            if let Some(last) = self.keys.last_mut() {
                *last = PossibleKey {
                    is_possible: true,
                    is_required,
                    token,
                    mark: self.cursor.mark,
                };
            }
        }
        Ok(())
    }

    /// Drops the position that was saved last: no key began there.
    fn drop_key(&mut self) -> Result<(), Error> {
        if let Some(key) = self.keys.last_mut() {
            if key.is_possible && key.is_required {
                return Err(key.mark.error("could not find expected ':'"));
            }
            key.is_possible = false;
        }
        Ok(())
    }

    fn column(&self) -> isize {
        isize::try_from(self.cursor.mark.column).unwrap_or(isize::MAX)
    }

    fn push(&mut self, token: Token) {
        self.tokens.push_back((self.cursor.mark, token));
    }

    /// Adds a token of `count` characters.
    fn push_characters(&mut self, token: Token, count: usize) {
        self.push(token);
        self.cursor.skip_many(count);
    }

    /// Begins a block list or map, if the position is to the right of the enclosing one.
    fn indent_to(&mut self, mark: Mark, at: usize, token: Token) {
        let column = isize::try_from(mark.column).unwrap_or(isize::MAX);
        if !self.is_in_flow() && self.indent < column {
            self.indents.push(self.indent);
            self.indent = column;
            self.tokens.insert(at, (mark, token));
        }
    }

    /// Ends the block lists and maps that are to the right of a column.
    fn unindent_to(&mut self, column: isize) {
        while !self.is_in_flow() && self.indent > column {
            self.push(Token::BlockEnd);
            self.indent = self.indents.pop().unwrap_or(-1);
        }
    }

    fn fetch(&mut self) -> Result<(), Error> {
        self.skip_to_token();
        self.unindent_to(self.column());
        let first = self.cursor.peek();
        let ends_word = is_blank_or_end(self.cursor.peek_at(1));
        match first {
            END => self.fetch_end(),
            '%' if self.cursor.mark.column == 0 => self.fetch_directive(),
            '-' if self.cursor.is_at_document_mark(&["---"]) => {
                self.fetch_document_mark(Token::DocumentStart)
            }
            '.' if self.cursor.is_at_document_mark(&["..."]) => {
                self.fetch_document_mark(Token::DocumentEnd)
            }
            '[' => self.fetch_flow_start(Token::FlowList),
            '{' => self.fetch_flow_start(Token::FlowMap),
            ']' => self.fetch_flow_end(Token::FlowListEnd),
            '}' => self.fetch_flow_end(Token::FlowMapEnd),
            ',' => self.fetch_flow_entry(),
            '-' if ends_word => self.fetch_block_entry(),
            '?' if self.is_in_flow() || ends_word => self.fetch_key(),
            ':' if self.is_in_flow() || ends_word => self.fetch_value(),
            '*' | '&' => self.push_word(tags::anchor),
            '!' => self.push_word(tags::tag),
            '|' | '>' if !self.is_in_flow() => self.fetch_block_scalar(),
            '\'' | '"' => self.push_word(flow_scalar::quoted),
            '\t' | '#' | '|' | '>' | '%' | '@' | '`' => Err(self
                .cursor
                .mark
                .error("found character that cannot start any token")),
            _ => self.fetch_plain(),
        }
    }

    /// Skips blanks, comments and line breaks. A tab may not stand where a key may begin.
    fn skip_to_token(&mut self) {
        loop {
            let tabs_allowed = self.is_in_flow() || !self.key_allowed;
            self.cursor.skip_while(if tabs_allowed {
                is_blank
            } else {
                |character| character == ' '
            });
            self.cursor.skip_comment();
            if !cursor::is_break(self.cursor.peek()) {
                return;
            }
            self.cursor.skip_break();
            if !self.is_in_flow() {
                self.key_allowed = true;
            }
        }
    }

    fn fetch_end(&mut self) -> Result<(), Error> {
        if let Some(problem) = self.end.take() {
            return Err(self.cursor.mark.refuse(problem));
        }
        self.cursor.finish_line();
        self.end_all_blocks()?;
        self.push(Token::End);
        self.has_ended = true;
        Ok(())
    }

    /// Ends all open block collections, before a directive, a document mark or the end.
    fn end_all_blocks(&mut self) -> Result<(), Error> {
        self.unindent_to(-1);
        self.drop_key()?;
        self.key_allowed = false;
        Ok(())
    }

    fn fetch_directive(&mut self) -> Result<(), Error> {
        self.end_all_blocks()?;
        self.push_read(tags::directive)
    }

    fn fetch_document_mark(&mut self, token: Token) -> Result<(), Error> {
        self.end_all_blocks()?;
        self.push_characters(token, 3);
        Ok(())
    }

    fn fetch_flow_start(&mut self, token: Token) -> Result<(), Error> {
        self.save_key()?;
        let first = self.taken_tokens + self.tokens.len();
        self.keys.push(PossibleKey {
            token: first,
            mark: self.cursor.mark,
            ..PossibleKey::default()
        });
        self.key_allowed = true;
        self.push_characters(token, 1);
        Ok(())
    }

    fn fetch_flow_end(&mut self, token: Token) -> Result<(), Error> {
        self.drop_key()?;
        if self.is_in_flow() {
            self.keys.pop();
        }
        self.key_allowed = false;
        self.push_characters(token, 1);
        Ok(())
    }

    fn fetch_flow_entry(&mut self) -> Result<(), Error> {
        self.drop_key()?;
        self.key_allowed = true;
        self.push_characters(Token::FlowEntry, 1);
        Ok(())
    }

    /// Begins a block list or map at the current position, where a line must begin.
    fn begin_block(&mut self, token: Token, problem: &'static str) -> Result<(), Error> {
        if !self.is_in_flow() {
            if !self.key_allowed {
                return Err(self.cursor.mark.error(problem));
            }
            self.indent_to(self.cursor.mark, self.tokens.len(), token);
        }
        Ok(())
    }

    fn fetch_block_entry(&mut self) -> Result<(), Error> {
        self.begin_block(
            Token::BlockList,
            "block sequence entries are not allowed in this context",
        )?;
        self.drop_key()?;
        self.key_allowed = true;
        self.push_characters(Token::BlockEntry, 1);
        Ok(())
    }

    fn fetch_key(&mut self) -> Result<(), Error> {
        self.begin_block(
            Token::BlockMap,
            "mapping keys are not allowed in this context",
        )?;
        self.drop_key()?;
        self.key_allowed = !self.is_in_flow();
        self.push_characters(Token::Key, 1);
        Ok(())
    }

    fn fetch_value(&mut self) -> Result<(), Error> {
        let last = self.keys.len() - 1;
        if self.is_still_possible(last)? {
            let PossibleKey { token, mark, .. } = self.keys[last];
            let at = token.saturating_sub(self.taken_tokens);
            self.tokens.insert(at, (mark, Token::Key));
            self.indent_to(mark, at, Token::BlockMap);
            self.keys[last].is_possible = false;
            self.key_allowed = false;
        } else {
            self.begin_block(
                Token::BlockMap,
                "mapping values are not allowed in this context",
            )?;
            self.key_allowed = !self.is_in_flow();
        }
        self.push_characters(Token::Value, 1);
        Ok(())
    }

    /// Adds a token that can be a key. No key can begin directly after it.
    fn push_word(
        &mut self,
        read: impl FnOnce(&mut Cursor<'t>) -> Result<Token, Error>,
    ) -> Result<(), Error> {
        self.save_key()?;
        self.key_allowed = false;
        self.push_read(read)
    }

    /// Adds the token that `read` reads from the current position.
    fn push_read(
        &mut self,
        read: impl FnOnce(&mut Cursor<'t>) -> Result<Token, Error>,
    ) -> Result<(), Error> {
        let mark = self.cursor.mark;
        let token = read(&mut self.cursor)?;
        self.tokens.push_back((mark, token));
        Ok(())
    }

    fn fetch_plain(&mut self) -> Result<(), Error> {
        let left = self.indent + 1;
        let is_in_flow = self.is_in_flow();
        let mut has_breaks = false;
        self.push_word(|cursor| {
            let (text, ends_line) = flow_scalar::plain(cursor, left, is_in_flow)?;
            has_breaks = ends_line;
            Ok(Token::Scalar {
                text,
                is_plain: true,
            })
        })?;
        self.key_allowed |= has_breaks;
        Ok(())
    }

    fn fetch_block_scalar(&mut self) -> Result<(), Error> {
        self.drop_key()?;
        self.key_allowed = true;
        let indent = self.indent;
        self.push_read(|cursor| {
            Ok(Token::Scalar {
                text: block_scalar::read(cursor, indent)?,
                is_plain: false,
            })
        })
    }
}
