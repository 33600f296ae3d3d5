//! The first look at a file: are its keys known, and its values of a kind that can occur at all?

use super::error::{Path, Report};
use super::problem::{KEYS, Problem};
use super::scalar::Scalar;
use super::yaml::{Content, Node, Pair};

/// Longest value repeated in a message, in characters.
const SHOWN: usize = 100;

/// Checks the keys of a map and of everything below it, whatever their place.
pub(super) fn check(pairs: &[Pair], path: &Path<'_>, report: &mut Report<'_>) {
    for pair in pairs {
        let key = pair.key.text.as_str();
        if pair.key.meaning != Scalar::Text {
            report.add(pair.at, path, Problem::KeyNotString(pair.key.to_string()));
            continue;
        }
        if KEYS.binary_search(&key).is_err() {
            report.add(pair.at, path, Problem::UnknownKey(shown(key)));
            continue;
        }
        // Metadata is free form.
        if key == "metadata" {
            continue;
        }
        check_value(&pair.value, &path.key(key), report);
    }
}

fn check_value(value: &Node, path: &Path<'_>, report: &mut Report<'_>) {
    match &value.content {
        Content::Map(pairs) => check(pairs, path, report),
        Content::List(items) => {
            for (index, item) in items.iter().enumerate() {
                let path = path.index(index);
                match &item.content {
                    Content::Map(pairs) => check(pairs, &path, report),
                    _ => report.add(item.at, &path, Problem::ListElement(shown(&item.to_string()))),
                }
            }
        }
        Content::Scalar(text) => {
            if matches!(text.meaning, Scalar::Float(_) | Scalar::Unsigned(_)) {
                report.add(value.at, path, Problem::Scalar);
            }
        }
    }
}

fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}
