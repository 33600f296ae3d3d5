//! Scalars with and without quotes, in one or more lines.

use super::Token;
use super::cursor::{Cursor, Mark, is_blank, is_blank_or_end, is_break};
use crate::error::{Error, Problem};

/// Blanks and line breaks between two words.
#[derive(Debug, Default)]
struct Gap {
    blanks: String,
    first_break: String,
    other_breaks: String,
    /// Whether there was a line break, so that blanks are the indentation of a line.
    has_break: bool,
}

impl Gap {
    /// Reads a blank or a line break.
    fn read(&mut self, cursor: &mut Cursor<'_>) {
        if is_blank(cursor.peek()) && self.has_break {
            cursor.skip();
        } else if is_blank(cursor.peek()) {
            cursor.read(&mut self.blanks);
        } else if self.has_break {
            cursor.read_break(&mut self.other_breaks);
        } else {
            self.blanks.clear();
            cursor.read_break(&mut self.first_break);
            self.has_break = true;
        }
    }

    /// Writes the gap with its line breaks folded: a single line break is a space.
    fn write(&mut self, text: &mut String) {
        if !self.has_break {
            text.push_str(&self.blanks);
        } else if !self.first_break.starts_with('\n') {
            text.push_str(&self.first_break);
            text.push_str(&self.other_breaks);
        } else if self.other_breaks.is_empty() {
            text.push(' ');
        } else {
            text.push_str(&self.other_breaks);
        }
        self.blanks.clear();
        self.first_break.clear();
        self.other_breaks.clear();
        self.has_break = false;
    }
}

/// Reads a scalar without quotes, and whether line breaks follow it. A tab at the beginning of a
/// line may not stand to the left of column `left`. Outside of flow collections, a line to the left
/// of that column ends the scalar.
pub(super) fn plain(
    cursor: &mut Cursor<'_>,
    left: isize,
    is_in_flow: bool,
) -> Result<(String, bool), Error> {
    let start = cursor.mark;
    let left = usize::try_from(left).unwrap_or(0);
    let (mut text, mut gap) = (String::new(), Gap::default());
    loop {
        if cursor.is_at_document_mark(&["---", "..."]) || cursor.peek() == '#' {
            break;
        }
        while !is_blank_or_end(cursor.peek()) && !ends_plain(cursor, is_in_flow) {
            if gap.has_break || !gap.blanks.is_empty() {
                gap.write(&mut text);
            }
            cursor.read(&mut text);
        }
        if !is_blank(cursor.peek()) && !is_break(cursor.peek()) {
            break;
        }
        while is_blank(cursor.peek()) || is_break(cursor.peek()) {
            if gap.has_break && cursor.mark.column < left && cursor.peek() == '\t' {
                return Err(start.error("found a tab character that violates indentation"));
            }
            gap.read(cursor);
        }
        if !is_in_flow && cursor.mark.column < left {
            break;
        }
    }
    Ok((text, gap.has_break))
}

fn ends_plain(cursor: &Cursor<'_>, is_in_flow: bool) -> bool {
    match cursor.peek() {
        ':' => is_blank_or_end(cursor.peek_at(1)),
        ',' | '?' | '[' | ']' | '{' | '}' => is_in_flow,
        _ => false,
    }
}

/// Reads a scalar in single or double quotes.
pub(super) fn quoted(cursor: &mut Cursor<'_>) -> Result<Token, Error> {
    let start = cursor.mark;
    let quote = cursor.peek();
    cursor.skip();
    let mut scalar = QuotedScalar {
        text: String::new(),
        gap: Gap::default(),
        start,
    };
    loop {
        start.require(
            !cursor.is_at_document_mark(&["---", "..."]),
            "found unexpected document indicator",
        )?;
        if cursor.is_at_end() {
            let last_line = cursor.mark.position().line;
            return Err(start.refuse(Problem::OpenQuote { last_line }));
        }
        words(cursor, quote, &mut scalar)?;
        if cursor.peek() == quote {
            cursor.skip();
            return Ok(Token::Scalar {
                text: scalar.text,
                is_plain: false,
            });
        }
        while is_blank(cursor.peek()) || is_break(cursor.peek()) {
            scalar.gap.read(cursor);
        }
        scalar.gap.write(&mut scalar.text);
    }
}

/// Scalar in quotes while it is read.
struct QuotedScalar {
    text: String,
    /// Blanks and line breaks after the last word.
    gap: Gap,
    start: Mark,
}

/// Reads up to a blank, a line break or the closing quote.
fn words(cursor: &mut Cursor<'_>, quote: char, out: &mut QuotedScalar) -> Result<(), Error> {
    loop {
        let next = cursor.peek();
        if is_blank_or_end(next) {
            return Ok(());
        }
        let following = cursor.peek_at(1);
        if next == quote {
            if quote == '"' || following != '\'' {
                return Ok(());
            }
            out.text.push('\'');
            cursor.skip_many(2);
        } else if next == '\\' && quote == '"' {
            if is_break(following) {
                // An escaped line break joins the lines without a space. Only the line breaks after
                // it count.
                cursor.skip();
                cursor.skip_break();
                out.gap.has_break = true;
                return Ok(());
            }
            escape(cursor, out)?;
        } else {
            cursor.read(&mut out.text);
        }
    }
}

fn escape(cursor: &mut Cursor<'_>, out: &mut QuotedScalar) -> Result<(), Error> {
    let character = match cursor.peek_at(1) {
        '0' => '\0',
        'a' => '\x07',
        'b' => '\x08',
        't' | '\t' => '\t',
        'n' => '\n',
        'v' => '\x0b',
        'f' => '\x0c',
        'r' => '\r',
        'e' => '\x1b',
        same @ (' ' | '"' | '\'' | '\\') => same,
        'N' => '\u{85}',
        '_' => '\u{a0}',
        'L' => '\u{2028}',
        'P' => '\u{2029}',
        'x' => return escaped_number(cursor, 2, out),
        'u' => return escaped_number(cursor, 4, out),
        'U' => return escaped_number(cursor, 8, out),
        _ => return Err(out.start.error("found unknown escape character")),
    };
    cursor.skip_many(2);
    out.text.push(character);
    Ok(())
}

fn escaped_number(
    cursor: &mut Cursor<'_>,
    digits: usize,
    out: &mut QuotedScalar,
) -> Result<(), Error> {
    cursor.skip_many(2);
    let mut value: u32 = 0;
    for _ in 0..digits {
        let Some(digit) = cursor.peek().to_digit(16) else {
            return Err(out.start.error("did not find expected hexadecimal number"));
        };
        value = value.wrapping_mul(16).wrapping_add(digit);
        cursor.skip();
    }
    let invalid = "found invalid Unicode character escape code";
    let character = char::from_u32(value).ok_or_else(|| out.start.error(invalid))?;
    out.text.push(character);
    Ok(())
}
