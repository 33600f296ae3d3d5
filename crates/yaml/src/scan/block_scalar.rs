//! Scalars after `|` and `>`.

use super::cursor::{Cursor, Mark, is_blank, is_break, is_break_or_end};
use crate::error::Error;

/// Handling of the line breaks at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Chomping {
    Strip,
    Clip,
    Keep,
}

/// Reads a scalar. `around` is the column of the block collection around it.
pub(super) fn read(cursor: &mut Cursor<'_>, around: isize) -> Result<String, Error> {
    let start = cursor.mark;
    let is_folded = cursor.peek() == '>';
    cursor.skip();
    let (chomping, step) = header(cursor, start)?;
    let around = usize::try_from(around).ok();
    let mut indent = step.map(|step| around.unwrap_or(0) + step);
    // The first string holds the last line break of the text so far, the second those of empty
    // lines after it.
    let (mut last_break, mut empty_lines) = (String::new(), String::new());
    let scalar = ScalarStart {
        mark: start,
        min_column: around.map_or(1, |around| around + 1),
    };
    let indent = skip_empty_lines(cursor, &mut indent, &mut empty_lines, scalar)?;
    let mut text = String::new();
    let mut after_blank = false;
    while cursor.mark.column == indent && !cursor.is_at_end() {
        let begins_blank = is_blank(cursor.peek());
        let is_joined = is_folded && !after_blank && !begins_blank && last_break.starts_with('\n');
        if !is_joined {
            text.push_str(&last_break);
        } else if empty_lines.is_empty() {
            text.push(' ');
        }
        last_break.clear();
        text.push_str(&empty_lines);
        empty_lines.clear();
        after_blank = begins_blank;
        cursor.read_while(&mut text, |character| !is_break(character));
        cursor.read_break(&mut last_break);
        skip_empty_lines(cursor, &mut Some(indent), &mut empty_lines, scalar)?;
    }
    if chomping != Chomping::Strip {
        text.push_str(&last_break);
    }
    if chomping == Chomping::Keep {
        text.push_str(&empty_lines);
    }
    Ok(text)
}

/// Reads the rest of the first line: the chomping, and the columns by which the text is indented.
fn header(cursor: &mut Cursor<'_>, start: Mark) -> Result<(Chomping, Option<usize>), Error> {
    let mut chomping = None;
    let mut step = None;
    // Each of the two indicators occurs at most once, in either order.
    for _ in 0..2 {
        match cursor.peek() {
            '+' if chomping.is_none() => chomping = Some(Chomping::Keep),
            '-' if chomping.is_none() => chomping = Some(Chomping::Strip),
            '0' if step.is_none() => {
                return Err(start.error("found an indentation indicator equal to 0"));
            }
            digit @ '1'..='9' if step.is_none() => {
                step = digit.to_digit(10).map(|step| step as usize)
            }
            _ => break,
        }
        cursor.skip();
    }
    cursor.skip_blanks_and_comment();
    start.require(
        is_break_or_end(cursor.peek()),
        "did not find expected comment or line break",
    )?;
    cursor.skip_break();
    Ok((chomping.unwrap_or(Chomping::Clip), step))
}

/// Start of a scalar.
#[derive(Debug, Clone, Copy)]
struct ScalarStart {
    mark: Mark,
    /// Leftmost column that the text may have.
    min_column: usize,
}

/// Skips empty lines and the indentation of the next one. Returns the column of the text. If it is
/// not known yet, the longest of these lines sets it.
fn skip_empty_lines(
    cursor: &mut Cursor<'_>,
    indent: &mut Option<usize>,
    empty_lines: &mut String,
    scalar: ScalarStart,
) -> Result<usize, Error> {
    let mut longest = 0;
    loop {
        let is_left = |cursor: &Cursor<'_>| indent.is_none_or(|indent| cursor.mark.column < indent);
        while is_left(cursor) && cursor.peek() == ' ' {
            cursor.skip();
        }
        longest = longest.max(cursor.mark.column);
        if is_left(cursor) && cursor.peek() == '\t' {
            return Err(scalar
                .mark
                .error("found a tab character where an indentation space is expected"));
        }
        if !is_break(cursor.peek()) {
            return Ok(*indent.get_or_insert(longest.max(scalar.min_column)));
        }
        cursor.read_break(empty_lines);
    }
}
