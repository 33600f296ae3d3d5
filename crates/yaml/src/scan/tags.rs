//! Directives, anchors and tags.

use super::Token;
use super::cursor::{Cursor, Mark, is_blank, is_blank_or_end, is_break_or_end, is_word};
use crate::error::Error;

/// Most digits of a number in `%YAML`, as in yaml.v2.
const MAX_DIGITS: usize = 2;

/// Reads a line that begins with `%`.
pub(super) fn directive(cursor: &mut Cursor<'_>) -> Result<Token, Error> {
    let start = cursor.mark;
    cursor.skip();
    let mut name = String::new();
    cursor.read_while(&mut name, is_word);
    start.require(!name.is_empty(), "could not find expected directive name")?;
    start.require(
        is_blank_or_end(cursor.peek()),
        "found unexpected non-alphabetical character",
    )?;
    let token = match name.as_str() {
        "YAML" => version(cursor, start)?,
        "TAG" => tag_directive(cursor, start)?,
        _ => return Err(start.error("found unknown directive name")),
    };
    cursor.skip_blanks_and_comment();
    start.require(
        is_break_or_end(cursor.peek()),
        "did not find expected comment or line break",
    )?;
    cursor.skip_break();
    Ok(token)
}

fn version(cursor: &mut Cursor<'_>, start: Mark) -> Result<Token, Error> {
    cursor.skip_while(is_blank);
    let major = number(cursor, start)?;
    start.require(
        cursor.peek() == '.',
        "did not find expected digit or '.' character",
    )?;
    cursor.skip();
    Ok(Token::Version {
        major,
        minor: number(cursor, start)?,
    })
}

fn number(cursor: &mut Cursor<'_>, start: Mark) -> Result<u32, Error> {
    let mut digits = String::new();
    cursor.read_while(&mut digits, |character| character.is_ascii_digit());
    start.require(
        digits.len() <= MAX_DIGITS,
        "found extremely long version number",
    )?;
    digits
        .parse()
        .map_err(|_| start.error("did not find expected version number"))
}

fn tag_directive(cursor: &mut Cursor<'_>, start: Mark) -> Result<Token, Error> {
    cursor.skip_while(is_blank);
    let handle = tag_handle(cursor, start)?;
    start.require(
        handle == "!" || (handle.len() > 1 && handle.ends_with('!')),
        "did not find expected '!'",
    )?;
    start.require(is_blank(cursor.peek()), "did not find expected whitespace")?;
    cursor.skip_while(is_blank);
    let prefix = tag_uri(cursor, "", start)?;
    start.require(
        is_blank_or_end(cursor.peek()),
        "did not find expected whitespace or line break",
    )?;
    Ok(Token::TagDirective { handle, prefix })
}

/// Reads an anchor or an alias.
pub(super) fn anchor(cursor: &mut Cursor<'_>) -> Result<Token, Error> {
    let start = cursor.mark;
    let is_alias = cursor.peek() == '*';
    cursor.skip();
    let mut name = String::new();
    cursor.read_while(&mut name, is_word);
    let next = cursor.peek();
    if name.is_empty()
        || !(is_blank_or_end(next) || matches!(next, '?' | ':' | ',' | ']' | '}' | '%' | '@' | '`'))
    {
        return Err(start.error("did not find expected alphabetic or numeric character"));
    }
    Ok(if is_alias {
        Token::Alias(name)
    } else {
        Token::Anchor(name)
    })
}

/// Reads `!suffix`, `!handle!suffix` or `!<tag>`.
pub(super) fn tag(cursor: &mut Cursor<'_>) -> Result<Token, Error> {
    let start = cursor.mark;
    let (handle, suffix) = if cursor.peek_at(1) == '<' {
        cursor.skip_many(2);
        let suffix = tag_uri(cursor, "", start)?;
        start.require(cursor.peek() == '>', "did not find the expected '>'")?;
        cursor.skip();
        (String::new(), suffix)
    } else {
        let handle = tag_handle(cursor, start)?;
        if handle.len() > 1 && handle.ends_with('!') {
            let suffix = tag_uri(cursor, "", start)?;
            (handle, suffix)
        } else {
            match tag_uri(cursor, &handle, start)? {
                // A lone `!`.
                suffix if suffix.is_empty() => (suffix, "!".to_owned()),
                suffix => ("!".to_owned(), suffix),
            }
        }
    };
    start.require(
        is_blank_or_end(cursor.peek()),
        "did not find expected whitespace or line break",
    )?;
    Ok(Token::Tag { handle, suffix })
}

fn tag_handle(cursor: &mut Cursor<'_>, start: Mark) -> Result<String, Error> {
    start.require(cursor.peek() == '!', "did not find expected '!'")?;
    let mut handle = String::new();
    cursor.read(&mut handle);
    cursor.read_while(&mut handle, is_word);
    if cursor.peek() == '!' {
        cursor.read(&mut handle);
    }
    Ok(handle)
}

/// Reads a URI whose beginning was read as a handle.
fn tag_uri(cursor: &mut Cursor<'_>, head: &str, start: Mark) -> Result<String, Error> {
    let mut uri = head.get(1..).unwrap_or_default().to_owned();
    let mut is_empty = head.is_empty();
    loop {
        match cursor.peek() {
            '%' => escaped(cursor, &mut uri, start)?,
            next if is_word(next) || ";/?:@&=+$,.!~*'()[]".contains(next) => cursor.read(&mut uri),
            _ if is_empty => return Err(start.error("did not find expected tag URI")),
            _ => return Ok(uri),
        }
        is_empty = false;
    }
}

/// Reads one character whose bytes are escaped.
fn escaped(cursor: &mut Cursor<'_>, uri: &mut String, start: Mark) -> Result<(), Error> {
    let mut bytes = Vec::new();
    let mut width = 1;
    while bytes.len() < width {
        let digits = [cursor.peek_at(1), cursor.peek_at(2)].map(|digit| digit.to_digit(16));
        let (Some(high), Some(low), '%') = (digits[0], digits[1], cursor.peek()) else {
            return Err(start.error("did not find URI escaped octet"));
        };
        let byte = u8::try_from(high * 16 + low).unwrap_or_default();
        if bytes.is_empty() {
            width = match byte {
                0..0x80 => 1,
                0xC0..0xE0 => 2,
                0xE0..0xF0 => 3,
                0xF0..0xF8 => 4,
                _ => return Err(start.error("found an incorrect leading UTF-8 octet")),
            };
        }
        bytes.push(byte);
        cursor.skip_many(3);
    }
    let text = std::str::from_utf8(&bytes)
        .map_err(|_| start.error("found an incorrect trailing UTF-8 octet"))?;
    uri.push_str(text);
    Ok(())
}
