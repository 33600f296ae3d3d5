//! The first pass over a file: checks that its keys are known, and that lists and numbers are of an
//! allowed kind.

use super::problem::{KEYS, Problem};
use super::scalar::{Content, Node, Pair, ScalarValue, go_text};
use super::{Path, Report};

/// Maximum number of characters of a value in a message.
const MAX_SHOWN_CHARS: usize = 100;

/// Checks a map and everything below it. Every known key is allowed at every depth.
pub(super) fn check(pairs: &[Pair], path: &Path<'_>, report: &mut Report<'_>) {
    for pair in pairs {
        let key = pair.key().text.as_str();
        if pair.key().value != ScalarValue::Text {
            report.add(pair.at, path, Problem::KeyNotString(pair.key().to_string()));
            continue;
        }
        if KEYS.binary_search(&key).is_err() {
            report.add(pair.at, path, Problem::UnknownKey(shown(key)));
            continue;
        }
        // Metadata may have any keys.
        if key == "metadata" {
            continue;
        }
        check_value(&pair.value, &path.key(key), report);
    }
}

fn check_value(value: &Node, path: &Path<'_>, report: &mut Report<'_>) {
    match &*value.content {
        Content::Map(pairs) => check(pairs, path, report),
        Content::List(items) => {
            for (index, item) in items.iter().enumerate() {
                let path = path.index(index);
                match &*item.content {
                    Content::Map(pairs) => check(pairs, &path, report),
                    _ => report.add(item.at, &path, Problem::ListElement(shown(&go_text(item)))),
                }
            }
        }
        Content::Scalar(scalar) => {
            if matches!(
                scalar.value,
                ScalarValue::Float(_) | ScalarValue::Unsigned(_)
            ) {
                report.add(value.at, path, Problem::Scalar);
            }
        }
    }
}

fn shown(text: &str) -> String {
    match text.char_indices().nth(MAX_SHOWN_CHARS) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}
