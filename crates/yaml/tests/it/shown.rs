//! A document as one line of text.

use std::fmt::Write as _;

use tidegate_yaml::{Content, Error, Node, ScalarStyle, Schema, parse};

/// Scalars as they were written: `plain`, `"quoted"` or `!<tag>"tagged"`.
enum Written {}

impl Schema for Written {
    type Scalar = String;

    fn scalar(text: String, form: ScalarStyle<'_>) -> Result<String, String> {
        Ok(match form {
            ScalarStyle::Plain if !text.is_empty() => text.escape_default().to_string(),
            ScalarStyle::Plain => "~".to_owned(),
            ScalarStyle::Quoted => format!("\"{}\"", text.escape_default()),
            ScalarStyle::Tagged(tag) => format!("!<{tag}>\"{}\"", text.escape_default()),
        })
    }
}

/// The first document, or the mistake with its place.
pub(crate) fn shown(text: &[u8]) -> String {
    match read(text) {
        Ok(shown) => shown,
        Err(error) => format!("{}:{}: {error}", error.at.line, error.at.column),
    }
}

pub(crate) fn read(text: &[u8]) -> Result<String, Error> {
    let mut out = String::new();
    match parse::<Written>(text, 100)?.root {
        Some(root) => write(&root, &mut out),
        None => out.push_str("nothing"),
    }
    Ok(out)
}

fn write(node: &Node<String>, out: &mut String) {
    match &*node.content {
        Content::Scalar(scalar) => out.push_str(scalar),
        Content::List(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                out.push_str(if at == 0 { "" } else { ", " });
                write(item, out);
            }
            out.push(']');
        }
        Content::Map(pairs) => {
            out.push('{');
            for (at, pair) in pairs.iter().enumerate() {
                let _ = write!(out, "{}{}: ", if at == 0 { "" } else { ", " }, pair.key());
                write(&pair.value, out);
            }
            out.push('}');
        }
    }
}
