//! Cursor: a position in the text.

use crate::error::{Error, Problem};
use crate::node::Position;

/// Marks the end of the text. The character itself does not occur, because YAML does not allow it.
pub(super) const END: char = '\0';

/// Position as the number of characters, line breaks, and characters of the line before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Mark {
    pub(super) characters: usize,
    pub(super) line: usize,
    pub(super) column: usize,
}

impl Mark {
    /// Returns the position for people, counted from 1.
    pub(crate) fn position(self) -> Position {
        let number = |value: usize| u32::try_from(value + 1).unwrap_or(u32::MAX);
        Position {
            line: number(self.line),
            column: number(self.column),
        }
    }

    /// Returns a syntax error at this position.
    pub(crate) fn error(self, problem: &'static str) -> Error {
        self.refuse(Problem::Syntax(problem))
    }

    /// Returns an error at this position.
    pub(crate) fn refuse(self, problem: Problem) -> Error {
        Error {
            at: self.position(),
            problem,
        }
    }

    /// Returns a syntax error at this position unless the condition holds.
    pub(super) fn require(self, condition: bool, problem: &'static str) -> Result<(), Error> {
        if condition {
            Ok(())
        } else {
            Err(self.error(problem))
        }
    }
}

#[derive(Debug)]
pub(super) struct Cursor<'t> {
    text: &'t str,
    /// Offset in bytes.
    offset: usize,
    pub(super) mark: Mark,
}

impl<'t> Cursor<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self {
            text,
            offset: 0,
            mark: Mark::default(),
        }
    }

    pub(super) fn peek(&self) -> char {
        self.peek_at(0)
    }

    /// Returns the character that is `count` characters ahead.
    pub(super) fn peek_at(&self, count: usize) -> char {
        self.text[self.offset..].chars().nth(count).unwrap_or(END)
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.offset == self.text.len()
    }

    /// Whether one of `marks` stands here as a word at the beginning of a line.
    pub(super) fn is_at_document_mark(&self, marks: &[&str]) -> bool {
        let here = &self.text[self.offset..];
        self.mark.column == 0
            && marks.iter().any(|mark| here.starts_with(mark))
            && is_blank_or_end(self.peek_at(3))
    }

    /// Skips a character of the line.
    pub(super) fn skip(&mut self) {
        if !self.is_at_end() {
            self.offset += self.peek().len_utf8();
        }
        self.mark.characters += 1;
        self.mark.column += 1;
    }

    pub(super) fn skip_many(&mut self, count: usize) {
        for _ in 0..count {
            self.skip();
        }
    }

    /// Reads a character of the line.
    pub(super) fn read(&mut self, out: &mut String) {
        out.push(self.peek());
        self.skip();
    }

    /// Reads characters of the line while they fit.
    pub(super) fn read_while(&mut self, out: &mut String, fits: fn(char) -> bool) {
        while !self.is_at_end() && fits(self.peek()) {
            self.read(out);
        }
    }

    pub(super) fn skip_while(&mut self, fits: fn(char) -> bool) {
        while !self.is_at_end() && fits(self.peek()) {
            self.skip();
        }
    }

    /// Reads a line break, which counts as `
    /// `. The separators of Unicode are kept.
    pub(super) fn read_break(&mut self, out: &mut String) {
        let first = self.peek();
        if !is_break(first) {
            return;
        }
        let is_pair = first == '\r' && self.peek_at(1) == '\n';
        self.offset += if is_pair { 2 } else { first.len_utf8() };
        self.mark = Mark {
            characters: self.mark.characters + if is_pair { 2 } else { 1 },
            line: self.mark.line + 1,
            column: 0,
        };
        out.push(if matches!(first, '\u{2028}' | '\u{2029}') {
            first
        } else {
            '\n'
        });
    }

    pub(super) fn skip_break(&mut self) {
        self.read_break(&mut String::new());
    }

    /// Skips blanks and a comment, which needs no blank before it.
    pub(super) fn skip_blanks_and_comment(&mut self) {
        self.skip_while(is_blank);
        self.skip_comment();
    }

    pub(super) fn skip_comment(&mut self) {
        if self.peek() == '#' {
            self.skip_while(|character| !is_break(character));
        }
    }

    /// Begins a new line at the end of the text.
    pub(super) fn finish_line(&mut self) {
        if self.mark.column != 0 {
            self.mark.column = 0;
            self.mark.line += 1;
        }
    }
}

pub(super) fn is_blank(character: char) -> bool {
    matches!(character, ' ' | '\t')
}

pub(super) fn is_break(character: char) -> bool {
    matches!(character, '\r' | '\n' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

pub(super) fn is_break_or_end(character: char) -> bool {
    character == END || is_break(character)
}

pub(super) fn is_blank_or_end(character: char) -> bool {
    is_blank(character) || is_break_or_end(character)
}

/// Whether a character may occur in names: of anchors, directives and handles of tags.
pub(super) fn is_word(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '-')
}
