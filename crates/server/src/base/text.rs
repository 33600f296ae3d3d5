//! Quotes texts from outside for people: short, and on one line.

/// Maximum of characters of a reason that another server sends.
pub(crate) const MAX_REASON_CHARS: usize = 300;

/// Returns at most `max_chars` characters of `text`, with two dots if there are more. Escapes line
/// ends, invisible characters, and those that move others.
pub(crate) fn quoted(text: &str, max_chars: usize) -> String {
    let mut out = String::new();
    let mut characters = text.chars();
    for character in characters.by_ref().take(max_chars) {
        match character {
            '"' | '\'' | '\\' => out.push(character),
            other => out.extend(other.escape_debug()),
        }
    }
    if characters.next().is_some() {
        out += "..";
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_others_are_short_and_in_one_line() {
        for (text, expected) in [
            (
                "it's \"v1\" \\ \u{e9}\u{4e16}",
                "it's \"v1\" \\ \u{e9}\u{4e16}",
            ),
            ("a\nb\r\tc\0\u{1b}[2J", "a\\nb\\r\\tc\\0\\u{1b}[2J"),
            ("\u{202e}back\u{2028}", "\\u{202e}back\\u{2028}"),
            (
                "0123456789012345678901234567890123456789",
                "012345678901234567890123456789..",
            ),
        ] {
            assert_eq!(quoted(text, 30), expected);
        }
        assert_eq!(quoted("abc", 3), "abc");
    }
}
