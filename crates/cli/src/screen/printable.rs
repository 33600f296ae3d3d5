//! Texts of others, made safe for a terminal.

/// One line of text, without characters that move a terminal's cursor or change its colours or writing direction.
#[must_use]
pub fn printable(text: &str) -> String {
    text.replace(steers, "\u{FFFD}")
}

/// Whether a character controls a terminal.
pub(crate) fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// The same for a text of several lines: its line breaks stay, and each line but the first begins with `indent` spaces.
pub(crate) fn indented(text: &str, indent: usize) -> String {
    let lines: Vec<String> = text.lines().map(|line| printable(&line.replace('\t', "    "))).collect();
    lines.join(&format!("\n{}", " ".repeat(indent)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_steer_a_terminal() {
        let check = |text: &str, expected: &str| assert_eq!(printable(text), expected);
        check("plain é 漢", "plain é 漢");
        check("\u{1b}[31mred\r\n\t", "\u{FFFD}[31mred\u{FFFD}\u{FFFD}\u{FFFD}");
        check("a\u{202e}b\u{9b}c\u{7f}", "a\u{FFFD}b\u{FFFD}c\u{FFFD}");
    }

    #[test]
    fn line_breaks_stay_where_there_is_room_for_lines() {
        let check = |text: &str, expected: &str| assert_eq!(indented(text, 2), expected);
        check("{\n\t\"t\": 1\r\n}\n", "{\n      \"t\": 1\n  }");
        check("a\rb\u{1b}[2J\u{7}\nc", "a\u{FFFD}b\u{FFFD}[2J\u{FFFD}\n  c");
    }
}
