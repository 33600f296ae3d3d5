//! Escaping of texts from outside, so that they are safe on a terminal.

use crate::environment::Colour;

/// One line of text, without characters that move a terminal's cursor or change its colours or
/// writing direction.
#[must_use]
pub fn printable(text: &str) -> String {
    text.replace(controls_terminal, "\u{FFFD}")
}

/// Whether a character controls a terminal.
pub(crate) fn controls_terminal(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// A drawing with line breaks and tabs, and with colours if `colour` allows them. Other escape
/// sequences are made harmless.
pub(crate) fn drawing(text: &str, colour: Colour) -> String {
    let line = |line: &str| {
        line.split('\t')
            .map(printable)
            .collect::<Vec<_>>()
            .join("\t")
    };
    let mut parts = text.split("\u{1b}[");
    let mut out: String = parts
        .next()
        .unwrap_or_default()
        .split_inclusive('\n')
        .map(|part| map_line(part, line))
        .collect();
    for part in parts {
        let digits = part.len()
            - part
                .trim_start_matches(|c: char| c.is_ascii_digit() || c == ';')
                .len();
        let is_colour = colour == Colour::Ansi && part[digits..].starts_with('m');
        let (code, rest) = part.split_at(if is_colour { digits + 1 } else { 0 });
        out += if is_colour { "\u{1b}[" } else { "\u{FFFD}[" };
        out += code;
        out.extend(rest.split_inclusive('\n').map(|part| map_line(part, line)));
    }
    out
}

/// Applies `line` to the text of a line, and keeps its line break.
fn map_line(text: &str, line: impl Fn(&str) -> String) -> String {
    text.strip_suffix('\n').map_or_else(
        || line(text),
        |text| line(text.strip_suffix('\r').unwrap_or(text)) + "\n",
    )
}

/// JSON of equal meaning, with the characters that control a terminal escaped.
pub(crate) fn escaped_json(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '\n' | '\t' => out.push(c),
            // A carriage return is only between values here: in texts it is escaped.
            '\r' => out.push(' '),
            c if controls_terminal(c) => out += &format!("\\u{:04x}", u32::from(c)),
            c => out.push(c),
        }
    }
    out
}

/// A text of several lines, made safe. Its line breaks stay, and each line but the first is
/// indented.
pub(crate) fn indented(text: &str, indent: usize) -> String {
    let lines: Vec<String> = text
        .lines()
        .map(|line| printable(&line.replace('\t', "    ")))
        .collect();
    lines.join(&format!("\n{}", " ".repeat(indent)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_steer_a_terminal() {
        let check = |text: &str, expected: &str| assert_eq!(printable(text), expected);
        check("plain é 漢", "plain é 漢");
        check(
            "\u{1b}[31mred\r\n\t",
            "\u{FFFD}[31mred\u{FFFD}\u{FFFD}\u{FFFD}",
        );
        check("a\u{202e}b\u{9b}c\u{7f}", "a\u{FFFD}b\u{FFFD}c\u{FFFD}");
    }

    #[test]
    fn a_drawing_has_only_lines_and_colours() {
        let check =
            |text: &str, colour, expected: &str| assert_eq!(drawing(text, colour), expected);
        check(
            "a\tb\r\nc \u{1b}[1;31mred\u{1b}[0m\n",
            Colour::Ansi,
            "a\tb\nc \u{1b}[1;31mred\u{1b}[0m\n",
        );
        check("\u{1b}[31mred", Colour::None, "\u{FFFD}[31mred");
        check(
            "\u{1b}]0;t\u{7}\u{1b}[2J\u{9b}1m\r",
            Colour::Ansi,
            "\u{FFFD}]0;t\u{FFFD}\u{FFFD}[2J\u{FFFD}1m\u{FFFD}",
        );
    }

    #[test]
    fn json_on_a_terminal_is_escaped() {
        let json = "[\r\n\t\"é\u{9b}\u{7f}\u{202e}\u{61c}\u{200b}\"]";
        let shown = escaped_json(json);
        assert_eq!(shown, "[ \n\t\"é\\u009b\\u007f\\u202e\\u061c\\u200b\"]");
        let read = |json: &str| serde_json::from_str::<serde_json::Value>(json).unwrap();
        assert_eq!(read(&shown), read(json));
    }

    #[test]
    fn line_breaks_stay_where_there_is_room_for_lines() {
        let check = |text: &str, expected: &str| assert_eq!(indented(text, 2), expected);
        check("{\n\t\"t\": 1\r\n}\n", "{\n      \"t\": 1\n  }");
        check(
            "a\rb\u{1b}[2J\u{7}\nc",
            "a\u{FFFD}b\u{FFFD}[2J\u{FFFD}\n  c",
        );
    }
}
