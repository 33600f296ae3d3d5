//! Estimates the width of a label without a font.

use std::borrow::Cow;

use crate::graph::GraphJob;

/// Maximum characters of a label. A box of this many is as wide as three short ones.
const MAX_CHARACTERS: usize = 32;
/// Pixels of a box that are not text: the mark of the state on the left, and the padding.
const BESIDE: f64 = 44.0;
/// Ratio of font sizes: handlers are written in 11 pixels, names in 13.
const SMALLER: f64 = 11.0 / 13.0;
const LEAST_WIDTH: f64 = 96.0;

/// A text of at most 32 characters. `gap` replaces the middle of a longer text, because long names
/// tend to differ at their ends.
pub(crate) fn elided(text: &str, gap: char) -> Cow<'_, str> {
    let count = text.chars().count();
    if count <= MAX_CHARACTERS {
        return Cow::Borrowed(text);
    }
    let head = MAX_CHARACTERS / 2;
    let tail = MAX_CHARACTERS - head - 1;
    let mut short: String = text.chars().take(head).collect();
    short.push(gap);
    short.extend(text.chars().skip(count - tail));
    Cow::Owned(short)
}

/// The width of the box of a job, in pixels.
pub(super) fn box_width(job: &GraphJob) -> i32 {
    let text = width(&elided(&job.name, '…')).max(width(&elided(&job.handler, '…')) * SMALLER);
    (text + BESIDE).max(LEAST_WIDTH).ceil() as i32
}

/// Estimated width in pixels at 13 pixels, from the widest of the common sans-serif fonts. A box
/// that is too wide looks better than a cut name.
fn width(text: &str) -> f64 {
    let advance = |character| match character {
        'i' | 'j' | 'l' | 'I' | '.' | ',' | ':' | ';' | '|' | '!' | '\'' => 4.5,
        'f' | 'r' | 't' | ' ' | '-' | '/' | '(' | ')' | '[' | ']' | '"' => 5.8,
        'm' | 'w' | 'M' | 'W' | '@' | '%' => 13.0,
        '+' | '=' | '<' | '>' | '~' | '#' | '^' => 11.0,
        'A'..='Z' | '&' => 10.3,
        '_' | '0'..='9' => 9.0,
        '\u{1100}'.. => 13.5,
        _ => 8.3,
    };
    text.chars().map(advance).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_labels_lose_their_middle() {
        let check = |text: &str, expected: &str| assert_eq!(elided(text, '…'), expected);
        check("short", "short");
        check(&"x".repeat(32), &"x".repeat(32));
        check(
            &"x".repeat(33),
            &format!("{}…{}", "x".repeat(16), "x".repeat(15)),
        );
        check(
            "export-customers-of-the-region-2026-11-21",
            "export-customers…gion-2026-11-21",
        );
        check(
            &"é".repeat(40),
            &format!("{}…{}", "é".repeat(16), "é".repeat(15)),
        );
    }

    #[test]
    fn wider_text_is_given_more_room() {
        let texts = [
            "",
            "i",
            "in",
            "fetch",
            "FETCH",
            "fetch all",
            "获取所有页面的内容",
        ];
        for pair in texts.windows(2) {
            assert!(width(pair[0]) < width(pair[1]), "{pair:?}");
        }
    }
}
