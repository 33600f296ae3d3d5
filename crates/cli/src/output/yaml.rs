//! Conversion of JSON to YAML in block style.

use serde::de::Error as _;
use serde_json::value::RawValue;

use crate::output::json::{JsonField, pairs};
use crate::output::printable::controls_terminal;

/// Depth limit of lists and maps, equal to that of the JSON parser.
const MAX_DEPTH: usize = 128;

/// The YAML document of a JSON text. Numbers keep their digits, and fields their order.
pub(crate) fn document(json: &str) -> Result<String, serde_json::Error> {
    let mut out = "---\n".to_owned();
    write(serde_json::from_str(json)?, 0, LinePrefix::Line, &mut out)?;
    Ok(out)
}

/// Text before a value in its line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LinePrefix {
    /// No text, or the dash of an item.
    Line,
    /// A name and a colon.
    Name,
}

/// Writes a value whose depth is `depth`.
fn write(
    value: &RawValue,
    depth: usize,
    lead: LinePrefix,
    out: &mut String,
) -> Result<(), serde_json::Error> {
    let json = value.get();
    let (mut items, mut fields): (Vec<&RawValue>, Vec<JsonField<'_>>) = Default::default();
    match json.as_bytes()[0] {
        b'[' => items = serde_json::from_str(json)?,
        b'{' => fields = pairs(json)?,
        _ => {}
    }
    if items.is_empty() && fields.is_empty() {
        if lead == LinePrefix::Name {
            out.push(' ');
        }
        *out += &scalar(json)?;
        out.push('\n');
        return Ok(());
    }
    if depth == MAX_DEPTH {
        return Err(serde_json::Error::custom(format!(
            "more than {MAX_DEPTH} lists and maps inside each other"
        )));
    }
    if lead == LinePrefix::Name {
        out.push('\n');
    }
    let mut indent = match lead {
        LinePrefix::Line => String::new(),
        LinePrefix::Name => "  ".repeat(depth),
    };
    for item in items {
        *out += &indent;
        *out += "- ";
        write(item, depth + 1, LinePrefix::Line, out)?;
        indent = "  ".repeat(depth);
    }
    for (name, value) in fields {
        *out += &indent;
        *out += &scalar(name.get())?;
        out.push(':');
        write(value, depth + 1, LinePrefix::Name, out)?;
        indent = "  ".repeat(depth);
    }
    Ok(())
}

/// A text, number, word, or empty list or map as YAML.
fn scalar(json: &str) -> Result<String, serde_json::Error> {
    Ok(match json.as_bytes()[0] {
        b'"' => text(&serde_json::from_str::<String>(json)?),
        b'[' => "[]".to_owned(),
        b'{' => "{}".to_owned(),
        _ => number(json),
    })
}

/// A number. YAML 1.1 requires a sign in an exponent and a point before it.
fn number(json: &str) -> String {
    let Some((digits, exponent)) = json
        .split_once(['e', 'E'])
        .filter(|_| json.ends_with(|c: char| c.is_ascii_digit()))
    else {
        return json.to_owned();
    };
    let point = if digits.contains('.') { "" } else { ".0" };
    let sign = if exponent.starts_with(['+', '-']) {
        ""
    } else {
        "+"
    };
    format!("{digits}{point}e{sign}{exponent}")
}

/// A text, in quotes unless every YAML parser reads it as a text without them.
fn text(text: &str) -> String {
    // YAML 1.1 or 1.2 reads these words as other types.
    const WORDS: [&str; 9] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    let usual = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | ' ');
    let plain = text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.chars().all(usual);
    if plain && !text.ends_with(' ') && !WORDS.contains(&text.to_ascii_lowercase().as_str()) {
        return text.to_owned();
    }
    let quoted = serde_json::to_string(text).expect("a text is JSON");
    // JSON allows these characters unescaped; YAML or a terminal does not.
    quoted
        .chars()
        .map(|c| {
            if controls_terminal(c) || matches!(c, '\u{fffe}' | '\u{ffff}') {
                format!("\\u{:04x}", u32::from(c))
            } else {
                c.to_string()
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(json: &str, expected: &str) {
        assert_eq!(
            document(json).unwrap(),
            format!("---\n{expected}\n"),
            "{json}"
        );
    }

    #[test]
    fn structure_is_shown_by_indentation() {
        check(
            r#"{"b": 1, "a": {"c": [1, {"d": [], "e": {}}, [2]]}}"#,
            "b: 1\na:\n  c:\n    - 1\n    - d: []\n      e: {}\n    - - 2",
        );
        check("[]", "[]");
        check("{}", "{}");
        check("12345678901234567890123", "12345678901234567890123");
    }

    #[test]
    fn white_space_is_of_no_importance() {
        check(
            " [ [ ] , { } , { \"a\" : [ 1 , true ] , \"b]\\\"\" : null } ] ",
            "- []\n- {}\n- a:\n    - 1\n    - true\n  \"b]\\\"\": null",
        );
    }

    #[test]
    fn depth_is_bounded() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        check(&nested(129), &format!("{}[]", "- ".repeat(128)));
        assert!(
            document(&nested(130))
                .unwrap_err()
                .to_string()
                .contains("inside each other")
        );
        assert!(document(&nested(100_000)).is_err());
        assert!(
            document(&"[".repeat(100_000)).is_err()
                && document("{\"a\" 1}").is_err()
                && document("\"\\ud83d\"").is_err()
        );
    }

    #[test]
    fn numbers_stay_numbers_in_yaml_1_1() {
        check(
            "[1e5, 1E-2, 1.0e2, -2.5E+3, -0, 0.5]",
            "- 1.0e+5\n- 1.0e-2\n- 1.0e+2\n- -2.5e+3\n- -0\n- 0.5",
        );
        check(
            r#"["1e5", "\ufffe\uffff", true, false]"#,
            "- \"1e5\"\n- \"\\ufffe\\uffff\"\n- true\n- false",
        );
    }

    #[test]
    fn texts_stay_texts() {
        check(
            r#"["a b", "1", "", "true", "No", "~", "a: b", "x\ny", "2026-11-21", "\ud83d\ude00", "a\u001b\u009b"]"#,
            "- a b\n- \"1\"\n- \"\"\n- \"true\"\n- \"No\"\n- \"~\"\n- \"a: b\"\n- \"x\\ny\"\n- \"2026-11-21\"\n- \"😀\"\n- \"a\\u001b\\u009b\"",
        );
        check(r#"{"1": "a"}"#, "\"1\": a");
    }
}
