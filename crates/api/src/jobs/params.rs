//! Params of a job as its worker gets them: the job's params merged over the workflow's globals.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::hash::Hash;

use serde::de::{Deserializer, MapAccess, Visitor};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Merges two objects. A key of both has the value of the second.
pub(super) fn merged<'a>(below: Option<&'a str>, above: Option<&'a str>) -> Cow<'a, str> {
    let (below, above) = match (below, above) {
        (None, None) => return Cow::Borrowed("{}"),
        (Some(one), None) | (None, Some(one)) => return Cow::Borrowed(one),
        (Some(below), Some(above)) => (below, above),
    };
    let (Ok(below), Ok(above)) = (entries(below), entries(above)) else {
        // A key is no Unicode, such as half of a surrogate pair. Parsers take the last of two equal
        // keys.
        return Cow::Owned(join_text(below, above));
    };
    let all = ObjectEntries(overlay(below.0, above.0));
    Cow::Owned(serde_json::to_string(&all).expect("keys are texts"))
}

fn entries(object: &str) -> serde_json::Result<ObjectEntries<'_>> {
    serde_json::from_str(object)
}

/// Returns the entries below whose keys are not above, and then all above. It is linear, because an
/// object may have tens of thousands of keys.
fn overlay<K: Eq + Hash, V>(mut below: Vec<(K, V)>, mut above: Vec<(K, V)>) -> Vec<(K, V)> {
    let overridden: HashSet<&K> = above.iter().map(|(key, _)| key).collect();
    below.retain(|(key, _)| !overridden.contains(key));
    below.append(&mut above);
    below
}

/// Joins the text of two objects without reading their keys.
fn join_text(below: &str, above: &str) -> String {
    fn inside(object: &str) -> &str {
        let object = object.trim();
        object
            .strip_prefix('{')
            .and_then(|rest| rest.strip_suffix('}'))
            .unwrap_or_default()
            .trim()
    }
    let below = inside(below);
    let above = inside(above);
    let comma = if below.is_empty() || above.is_empty() {
        ""
    } else {
        ","
    };
    format!("{{{below}{comma}{above}}}")
}

/// Entries of an object, with their values as text.
struct ObjectEntries<'a>(Vec<(String, &'a RawValue)>);

impl Serialize for ObjectEntries<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

impl<'de> Deserialize<'de> for ObjectEntries<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EntriesVisitor;
        impl<'de> Visitor<'de> for EntriesVisitor {
            type Value = ObjectEntries<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(ObjectEntries(entries))
            }
        }
        deserializer.deserialize_map(EntriesVisitor)
    }
}

#[cfg(test)]
mod tests {
    use std::hash::{Hash, Hasher};
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    #[test]
    fn params_lie_over_globals_and_values_stay_as_they_are() {
        let check = |globals: Option<&str>, params: Option<&str>, expected: &str| {
            assert_eq!(merged(globals, params), expected);
        };
        check(None, None, "{}");
        check(Some(r#"{"a": 1.10}"#), None, r#"{"a": 1.10}"#);
        check(None, Some(r#"{"b":1e400}"#), r#"{"b":1e400}"#);
        check(
            Some(r#"{"a":1.10,"b":[1, 2]}"#),
            Some(r#"{"\u0061":null,"c":{}}"#),
            r#"{"b":[1, 2],"a":null,"c":{}}"#,
        );
        check(
            Some(r#" {"\ud800":1} "#),
            Some(r#"{"a":{}}"#),
            r#"{"\ud800":1,"a":{}}"#,
        );
        check(
            Some("{}"),
            Some(r#"{ "\udfff": [{}] }"#),
            r#"{"\udfff": [{}]}"#,
        );
        check(Some(r#"{"\ud800":{}}"#), Some("{ }"), r#"{"\ud800":{}}"#);
    }

    #[test]
    fn merging_compares_each_key_a_few_times() {
        static COMPARED: AtomicUsize = AtomicUsize::new(0);
        #[derive(Debug)]
        struct Key(usize);
        impl Hash for Key {
            fn hash<H: Hasher>(&self, state: &mut H) {
                self.0.hash(state);
            }
        }
        impl PartialEq for Key {
            fn eq(&self, other: &Self) -> bool {
                COMPARED.fetch_add(1, Relaxed);
                self.0 == other.0
            }
        }
        impl Eq for Key {}
        let keys = |from: usize| {
            (from..from + 20_000)
                .map(|key| (Key(key), ()))
                .collect::<Vec<_>>()
        };
        let all = overlay(keys(0), keys(10_000));
        assert!(
            all.iter().map(|(key, ())| key.0).eq(0..30_000),
            "keys below come first"
        );
        // One comparison for each of the 10,000 common keys, and a few for keys with equal hashes.
        let compared = COMPARED.load(Relaxed);
        assert!(compared < 40_000, "{compared} comparisons");
    }
}
