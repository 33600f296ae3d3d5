//! Equality of JSON texts by value. Spaces, the order of keys and the spelling of numbers and
//! strings do not matter.

use serde_json::Value;

/// Whether two JSON texts have equal values, after the entry of the key `without` is removed from
/// each that is an object. Of entries with the same key the last one counts. Texts with more than
/// 127 levels, strings that are not Unicode, or numbers beyond `f64` are equal only if their bytes
/// are.
pub(super) fn json_eq(left: &str, right: &str, without: Option<&str>) -> bool {
    let parse = |text| {
        let mut value = serde_json::from_str(text).ok()?;
        if let (Value::Object(entries), Some(key)) = (&mut value, without) {
            entries.remove(key);
        }
        Some(value)
    };
    let equal = || Some(values_eq(&parse(left)?, &parse(right)?));
    left == right || equal().unwrap_or(false)
}

/// Compares integers of 64 bits exactly and other numbers as `f64`.
fn values_eq(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) if left.is_f64() || right.is_f64() => {
            left.as_f64() == right.as_f64()
        }
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(l, r)| values_eq(l, r))
        }
        (Value::Object(left), Value::Object(right)) => {
            let in_right =
                |(key, value): (&String, _)| right.get(key).is_some_and(|r| values_eq(value, r));
            left.len() == right.len() && left.iter().all(in_right)
        }
        _ => left == right,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(left: &str, right: &str, expected: bool) {
        assert_eq!(json_eq(left, right, None), expected, "{left} {right}");
        assert_eq!(json_eq(right, left, None), expected, "{right} {left}");
    }

    #[test]
    fn spaces_order_and_spelling_mean_nothing() {
        check(
            r#"{"a":1,"b":[true,null]}"#,
            " {\n\"b\" : [ true , null ] , \"a\" : 1 }\t",
            true,
        );
        check(
            r#"{"é":"\"\\","x":{}}"#,
            r#"{"x":{ },"\u00e9":"\u0022\u005c"}"#,
            true,
        );
        check(r#"{"a":1,"a":2}"#, r#"{"a":2}"#, true);
        check("[]", "[ ]", true);
        for spelled in ["100", "1e2", "1E+2", "100.0", "0.1e3", "10000e-2"] {
            check(spelled, "100", true);
        }
        check("1.0", "1e0", true);
        check("0.10", "1e-1", true);
        check("-0", "0.0e9", true);
        check("-0", "0", true);
        // Decimals are compared as f64, which has 17 digits.
        check("0.1", "0.10000000000000000001", true);
    }

    #[test]
    fn values_places_and_kinds_count() {
        check(r#"{"a":1}"#, r#"{"a":2}"#, false);
        check(r#"{"a":1}"#, r#"{"a":"1"}"#, false);
        check(r#"{"a":1}"#, r#"{"a":1,"b":null}"#, false);
        check(r#"{"a":1,"a":2}"#, r#"{"a":1}"#, false);
        check("[1,2]", "[2,1]", false);
        check("[1,2]", "[1]", false);
        check("1", "-1", false);
        check("1", "10", false);
        check("9007199254740992", "9007199254740993", false);
        check("18446744073709551614", "18446744073709551615", false);
        check(r#""a""#, r#""A""#, false);
        check("true", "false", false);
    }

    #[test]
    fn the_entry_of_the_key_does_not_count() {
        let check = |left: &str, right: &str, expected: bool| {
            assert_eq!(json_eq(left, right, Some("k")), expected, "{left} {right}");
            assert_eq!(json_eq(right, left, Some("k")), expected, "{right} {left}");
        };
        check(r#"{"k":1}"#, "{}", true);
        check(r#"{"k":{"a":[1]},"b":1e0}"#, r#"{"b":1,"\u006b":2}"#, true);
        check(r#"{"k":1,"b":1}"#, r#"{"k":1,"b":2}"#, false);
        check(r#"{"a":{"k":1}}"#, r#"{"a":{}}"#, false);
        check(r#"{"k":1}"#, "5", false);
    }

    #[test]
    fn texts_that_cannot_be_read_are_compared_by_their_bytes() {
        let deep = |space: &str| format!("{}{space}{}", "[".repeat(100_000), "]".repeat(100_000));
        check(&deep(""), &deep(""), true);
        check(&deep(""), &deep(" "), false);
        check("1e400", "1e400", true);
        check("1e400", "1e401", false);
        check("1e99999999999999999999", "1e99999999999999999999", true);
        check(r#"["\ud800"]"#, r#"["\ud800"]"#, true);
        check(r#"["\ud800"]"#, r#"["\ud801"]"#, false);
        check(r#"["\ud800"]"#, r#"[ "\ud800" ]"#, false);
    }
}
