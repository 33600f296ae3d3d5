//! The trace context of a workflow's creation. It is a global, so every job receives it. Tidegate
//! does not interpret it, and it is not part of the definition's identity.

use std::collections::HashMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Visitor};
use serde_json::value::RawValue;

use crate::model::Json;

/// The name of the global with the trace context.
pub(crate) const TRACE: &str = "$trace";

/// The trace context among globals, as JSON text. Of duplicate keys the last one counts.
///
/// # Errors
/// The text is not a JSON object.
pub(crate) fn find_trace(globals: &str) -> Result<Option<&str>, serde_json::Error> {
    // Any other spelling of the key contains a backslash.
    if !globals.contains(TRACE) && !globals.contains('\\') {
        return Ok(None);
    }
    let entries: HashMap<IsTrace, &RawValue> = serde_json::from_str(globals)?;
    Ok(entries.get(&IsTrace(true)).map(|trace| trace.get()))
}

/// Globals with a trace context. `None` if they already have one, which takes precedence, or are
/// not a JSON object.
pub(crate) fn add_trace(globals: Option<&str>, trace: &str) -> Option<Json> {
    let wrap = |rest: &str| Json::from_checked(format!("{{\"{TRACE}\":{trace}{rest}}}"));
    let Some(globals) = globals else {
        return Some(wrap(""));
    };
    let inside = globals.trim().strip_prefix('{')?.strip_suffix('}')?.trim();
    if find_trace(globals).ok()?.is_some() {
        return None;
    }
    Some(if inside.is_empty() {
        wrap("")
    } else {
        wrap(&format!(",{inside}"))
    })
}

/// Whether a key is [`TRACE`].
#[derive(PartialEq, Eq, Hash)]
struct IsTrace(bool);

impl<'de> Deserialize<'de> for IsTrace {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeyVisitor;
        impl Visitor<'_> for KeyVisitor {
            type Value = IsTrace;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a key")
            }

            fn visit_bytes<E>(self, key: &[u8]) -> Result<IsTrace, E> {
                Ok(IsTrace(key == TRACE.as_bytes()))
            }

            fn visit_str<E>(self, key: &str) -> Result<IsTrace, E> {
                Ok(IsTrace(key == TRACE))
            }
        }
        // Keys are read as bytes because a key may not be Unicode, such as half of a surrogate
        // pair.
        deserializer.deserialize_bytes(KeyVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_trace_is_found_however_its_key_is_spelled() {
        let check = |globals: &str, expected: Option<&str>| {
            assert_eq!(find_trace(globals).unwrap(), expected, "{globals}");
        };
        check("{}", None);
        check(r#"{"$trace":{"a": 1}}"#, Some(r#"{"a": 1}"#));
        check(r#"{"b":[{"$trace":1}],"c":"$trace"}"#, None);
        check(r#"{"\ud800":1,"\u0024trac\u0065":7}"#, Some("7"));
        check(r#"{"$trace":1,"$trace":2}"#, Some("2"));
        for other in ["5", "[\"$trace\"]", "\"$trace\""] {
            assert!(!matches!(find_trace(other), Ok(Some(_))), "{other}");
        }
    }

    #[test]
    fn a_trace_is_put_before_globals_that_have_none() {
        let check = |globals: Option<&str>, expected: Option<&str>| {
            let with = add_trace(globals, "{}");
            assert_eq!(with.as_ref().map(Json::text), expected, "{globals:?}");
            assert!(with.is_none_or(|with| find_trace(with.text()).unwrap() == Some("{}")));
        };
        check(None, Some(r#"{"$trace":{}}"#));
        check(Some(" { } "), Some(r#"{"$trace":{}}"#));
        check(
            Some(r#"{ "a" : 1.10 }"#),
            Some(r#"{"$trace":{},"a" : 1.10}"#),
        );
        check(
            Some(r#"{"\ud800":"\\"}"#),
            Some(r#"{"$trace":{},"\ud800":"\\"}"#),
        );
        check(Some(r#"{"$trace":null}"#), None);
        check(Some(r#"{"a":1,"\u0024trace":null}"#), None);
        check(Some("[]"), None);
    }
}
