//! Decoding: bytes to characters.

use std::borrow::Cow;

use super::error::Problem;

/// Characters of a text up to the first that is not allowed.
#[derive(Debug)]
pub(crate) struct Text<'t> {
    pub(crate) characters: Cow<'t, str>,
    /// Problem of the next character. It matters only if the scanner gets there: the text after the
    /// first document is not read.
    pub(crate) end: Option<Problem>,
}

impl<'t> Text<'t> {
    /// Decodes UTF-8, or UTF-16 after its byte order mark.
    pub(crate) fn decode(bytes: &'t [u8]) -> Self {
        let mut text = match bytes {
            [0xFF, 0xFE, rest @ ..] => utf_16(rest, u16::from_le_bytes),
            [0xFE, 0xFF, rest @ ..] => utf_16(rest, u16::from_be_bytes),
            [0xEF, 0xBB, 0xBF, rest @ ..] => utf_8(rest),
            _ => utf_8(bytes),
        };
        let wrong = text
            .characters
            .char_indices()
            .find(|(_, character)| !is_allowed(*character));
        if let Some((at, _)) = wrong {
            text.end = Some(Problem::ControlCharacter);
            match &mut text.characters {
                Cow::Borrowed(characters) => *characters = &characters[..at],
                Cow::Owned(characters) => characters.truncate(at),
            }
        }
        text
    }
}

fn utf_8(bytes: &[u8]) -> Text<'_> {
    let valid = bytes.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    let end = (valid.len() < bytes.len()).then_some(Problem::NotUtf8);
    Text {
        characters: Cow::Borrowed(valid),
        end,
    }
}

fn utf_16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Text<'static> {
    let (pairs, rest) = bytes.as_chunks();
    let mut characters = String::with_capacity(bytes.len());
    let mut end = (!rest.is_empty()).then_some(Problem::NotUtf8);
    for character in char::decode_utf16(pairs.iter().map(|pair| unit(*pair))) {
        match character {
            Ok(character) => characters.push(character),
            Err(_) => {
                end = Some(Problem::NotUtf8);
                break;
            }
        }
    }
    Text {
        characters: Cow::Owned(characters),
        end,
    }
}

fn is_allowed(character: char) -> bool {
    match character {
        '\t' | '\n' | '\r' | '\u{85}' => true,
        '\0'..'\u{20}' | '\u{7f}'..'\u{a0}' | '\u{fffe}' | '\u{ffff}' => false,
        _ => true,
    }
}
