//! What JSON texts mean: whether two of them differ only in spaces, in the order of keys, or in how numbers and strings are spelled.

use std::collections::BTreeMap;

/// Deeper texts are compared as they are.
const DEEPEST: usize = 128;

/// Whether two JSON texts mean the same. Of a key that comes twice, readers take the last. Numbers are compared exactly, not as
/// floating point: `1.0` is `1e0`, but 2^53 is not 2^53 + 1.
pub(super) fn same(left: &str, right: &str) -> bool {
    let read = |text| Reader { rest: text }.whole();
    left == right || read(left).is_some_and(|left| read(right) == Some(left))
}

/// Whether two JSON texts that are objects mean the same without what they have under a key.
pub(super) fn same_without(key: &str, [left, right]: [&str; 2]) -> bool {
    let read = |text| match (Reader { rest: text }).whole()? {
        Value::Object(mut entries) => {
            entries.remove(&Ok(key.to_owned()));
            Some(entries)
        }
        _ => None,
    };
    left == right || read(left).is_some_and(|left| read(right) == Some(left))
}

/// A string, or its spelling where it is not Unicode, such as half of a surrogate pair.
type Text<'a> = Result<String, &'a str>;

#[derive(Debug, PartialEq)]
enum Value<'a> {
    /// `true`, `false`, `null`, or a number with an exponent beyond all measure.
    Word(&'a str),
    /// A sign, digits without zeros at either end, and the power of ten of the last digit.
    Number(bool, String, i64),
    Text(Text<'a>),
    List(Vec<Value<'a>>),
    Object(BTreeMap<Text<'a>, Value<'a>>),
}

/// Reads text that is known to be one JSON value. Whatever it finds odd is None.
struct Reader<'a> {
    rest: &'a str,
}

impl<'a> Reader<'a> {
    fn whole(mut self) -> Option<Value<'a>> {
        let value = self.value(DEEPEST)?;
        self.rest.trim_ascii().is_empty().then_some(value)
    }

    /// Takes this many bytes.
    fn take(&mut self, bytes: usize) -> Option<&'a str> {
        let (taken, rest) = self.rest.split_at_checked(bytes)?;
        self.rest = rest;
        Some(taken)
    }

    /// Takes this character, after spaces.
    fn sign(&mut self, sign: char) -> Option<()> {
        self.rest = self.rest.trim_ascii_start().strip_prefix(sign)?;
        Some(())
    }

    fn value(&mut self, depth: usize) -> Option<Value<'a>> {
        self.rest = self.rest.trim_ascii_start();
        match self.rest.as_bytes().first()? {
            b'{' => self.object(depth.checked_sub(1)?),
            b'[' => self.list(depth.checked_sub(1)?),
            b'"' => self.text().map(Value::Text),
            _ => {
                let ends =
                    |byte: u8| matches!(byte, b',' | b']' | b'}') || byte.is_ascii_whitespace();
                let end = self.rest.bytes().position(ends).unwrap_or(self.rest.len());
                let word = self.take(end)?;
                Some(number(word).unwrap_or(Value::Word(word)))
            }
        }
    }

    fn object(&mut self, depth: usize) -> Option<Value<'a>> {
        let mut entries = BTreeMap::new();
        self.sign('{')?;
        if self.sign('}').is_some() {
            return Some(Value::Object(entries));
        }
        loop {
            self.rest = self.rest.trim_ascii_start();
            let key = self.text()?;
            self.sign(':')?;
            entries.insert(key, self.value(depth)?);
            if self.sign(',').is_none() {
                return self.sign('}').map(|()| Value::Object(entries));
            }
        }
    }

    fn list(&mut self, depth: usize) -> Option<Value<'a>> {
        let mut items = Vec::new();
        self.sign('[')?;
        if self.sign(']').is_some() {
            return Some(Value::List(items));
        }
        loop {
            items.push(self.value(depth)?);
            if self.sign(',').is_none() {
                return self.sign(']').map(|()| Value::List(items));
            }
        }
    }

    fn text(&mut self) -> Option<Text<'a>> {
        let mut escaped = true;
        // The quote at the beginning is not the end.
        let end = self.rest.bytes().position(|byte| {
            let ends = byte == b'"' && !escaped;
            escaped = byte == b'\\' && !escaped;
            ends
        })?;
        let spelled = self.take(end + 1)?;
        Some(serde_json::from_str(spelled).map_err(|_| spelled))
    }
}

/// The number that is spelled so, if it is one.
fn number(spelled: &str) -> Option<Value<'_>> {
    let (negative, digits) = spelled
        .strip_prefix('-')
        .map_or((false, spelled), |digits| (true, digits));
    let (digits, exponent) = digits.split_once(['e', 'E']).unwrap_or((digits, "0"));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let digits = format!("{whole}{fraction}");
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let significant = digits.trim_end_matches('0');
    let shift = digits.len() as i64 - significant.len() as i64 - fraction.len() as i64;
    let exponent = exponent.parse::<i64>().ok()?.checked_add(shift)?;
    let significant = significant.trim_start_matches('0');
    match significant {
        "" => Some(Value::Number(false, String::new(), 0)),
        _ => Some(Value::Number(negative, significant.to_owned(), exponent)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(left: &str, right: &str, expected: bool) {
        assert_eq!(same(left, right), expected, "{left} {right}");
        assert_eq!(same(right, left), expected, "{right} {left}");
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
        check(r#"["\ud800"]"#, r#"[ "\ud800" ]"#, true);
        check("[]", "[ ]", true);
        for spelled in ["100", "1e2", "1E+2", "100.0", "0.1e3", "10000e-2"] {
            check(spelled, "100", true);
        }
        check("0.10", "1e-1", true);
        check("-0", "0.0e9", true);
        check("1e99999999999999999999", "1e99999999999999999999", true);
    }

    #[test]
    fn values_places_and_kinds_count() {
        check(r#"{"a":1}"#, r#"{"a":2}"#, false);
        check(r#"{"a":1}"#, r#"{"a":"1"}"#, false);
        check(r#"{"a":1}"#, r#"{"a":1,"b":null}"#, false);
        check(r#"{"a":1,"a":2}"#, r#"{"a":1}"#, false);
        check("[1,2]", "[2,1]", false);
        check("1", "-1", false);
        check("1", "10", false);
        check("9007199254740992", "9007199254740993", false);
        check("1e400", "1e401", false);
        check(r#""a""#, r#""A""#, false);
        check("true", "false", false);
        check(r#"["\ud800"]"#, r#"["\ud801"]"#, false);
    }

    #[test]
    fn what_is_under_the_key_means_nothing() {
        let check = |left: &str, right: &str, expected: bool| {
            assert_eq!(same_without("k", [left, right]), expected, "{left} {right}");
            assert_eq!(same_without("k", [right, left]), expected, "{right} {left}");
        };
        check(r#"{"k":1}"#, "{}", true);
        check(r#"{"k":{"a":[1]},"b":1e0}"#, r#"{"b":1,"\u006b":2}"#, true);
        check(r#"{"k":1,"b":1}"#, r#"{"k":1,"b":2}"#, false);
        check(r#"{"a":{"k":1}}"#, r#"{"a":{}}"#, false);
        check(r#"{"k":1}"#, "5", false);
    }

    #[test]
    fn what_is_very_deep_is_compared_as_it_is() {
        let deep = |space: &str| format!("{}{space}{}", "[".repeat(100_000), "]".repeat(100_000));
        check(&deep(""), &deep(""), true);
        check(&deep(""), &deep(" "), false);
    }
}
