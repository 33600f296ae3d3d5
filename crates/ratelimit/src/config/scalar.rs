//! YAML scalars: their text, and the value of the text by the rules of YAML 1.1 that the
//! reference's library uses.

use std::fmt;

use tidegate_yaml::{Form, Schema};

/// The beginning of the tags of YAML's own types.
const OWN_TAG_PREFIX: &str = "tag:yaml.org,2002:";

/// A node of a file.
pub(super) type Node = tidegate_yaml::Node<Scalar>;
/// The content of a node.
pub(super) type Content = tidegate_yaml::Content<Scalar>;
/// A key and its value.
pub(super) type Pair = tidegate_yaml::Pair<Scalar>;

/// A scalar: the text in the file, and its value.
#[derive(Debug, Clone)]
pub(super) struct Scalar {
    pub(super) text: String,
    pub(super) value: Value,
}

/// The type and value of a scalar.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Integer(i64),
    /// A whole number above `i64::MAX`.
    Unsigned(u64),
    Float(f64),
    /// A text, which is the text of the scalar.
    Text,
}

/// The scalars of YAML 1.1, by the rules of the reference's library.
#[derive(Debug)]
pub(super) enum Yaml11 {}

impl Schema for Yaml11 {
    type Scalar = Scalar;

    fn scalar(text: String, form: Form<'_>) -> Result<Scalar, String> {
        let value = match form {
            Form::Plain => Value::of_plain(&text),
            Form::Quoted => Value::Text,
            Form::Tagged(tag) => match tag.strip_prefix(OWN_TAG_PREFIX) {
                Some("binary") => {
                    let bytes = decode_base64(&text)
                        .ok_or("!!binary value contains invalid base64 data")?;
                    let text =
                        String::from_utf8(bytes).map_err(|_| "!!binary value is not UTF-8")?;
                    return Ok(Scalar {
                        text,
                        value: Value::Text,
                    });
                }
                Some(tag) => Value::of_tagged(tag, &text).ok_or_else(|| {
                    format!(
                        "cannot decode {} `{text}` as a !!{tag}",
                        Value::of_plain(&text).tag()
                    )
                })?,
                None => Value::Text,
            },
        };
        Ok(Scalar { text, value })
    }
}

/// Decodes base64, which may contain line breaks.
fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text
        .bytes()
        .filter(|byte| !matches!(byte, b'\r' | b'\n'))
        .collect();
    let padding = digits
        .iter()
        .rev()
        .take_while(|byte| **byte == b'=')
        .count();
    let digits = digits
        .get(..digits.len() - padding)
        .filter(|rest| padding <= 2 && (rest.len() + padding) % 4 == 0)?;
    let mut bytes = Vec::with_capacity(digits.len());
    for group in digits.chunks(4) {
        let mut bits: u32 = 0;
        for digit in group {
            bits = bits << 6 | base64_digit(*digit)?;
        }
        // A group of two, three or four digits has one, two or three bytes, which are moved to the
        // left of 24 bits.
        let [_, group_bytes @ ..] = (bits << (6 * (4 - group.len()))).to_be_bytes();
        bytes.extend_from_slice(&group_bytes[..group.len() - 1]);
    }
    Some(bytes)
}

fn base64_digit(digit: u8) -> Option<u32> {
    let value = match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    };
    Some(value.into())
}

impl fmt::Display for Scalar {
    /// Writes the value as Go prints it, because the reference's messages contain it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value {
            Value::Null => f.write_str("<nil>"),
            Value::Bool(value) => write!(f, "{value}"),
            Value::Integer(value) => write!(f, "{value}"),
            Value::Unsigned(value) => write!(f, "{value}"),
            Value::Float(value) if value.is_nan() => f.write_str("NaN"),
            Value::Float(value) if value.is_infinite() => {
                f.write_str(if value > 0.0 { "+Inf" } else { "-Inf" })
            }
            Value::Float(value) if value != 0.0 && !(1e-4..1e21).contains(&value.abs()) => {
                write!(f, "{value:e}")
            }
            Value::Float(value) => write!(f, "{value}"),
            Value::Text => f.write_str(&self.text),
        }
    }
}

/// Returns a value as Go prints it, because the reference's messages contain it.
pub(super) fn go_text(node: &Node) -> String {
    let joined = |parts: Vec<String>| parts.join(" ");
    match &*node.content {
        Content::Scalar(scalar) => scalar.to_string(),
        Content::List(items) => format!("[{}]", joined(items.iter().map(go_text).collect())),
        Content::Map(pairs) => {
            let pair = |pair: &Pair| format!("{}:{}", pair.key(), go_text(&pair.value));
            format!("map[{}]", joined(pairs.iter().map(pair).collect()))
        }
    }
}

impl Value {
    /// Returns the value of a scalar without quotes.
    pub(super) fn of_plain(text: &str) -> Self {
        match text {
            "" | "~" | "null" | "Null" | "NULL" => return Self::Null,
            "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
                return Self::Bool(true);
            }
            "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off"
            | "OFF" => {
                return Self::Bool(false);
            }
            ".nan" | ".NaN" | ".NAN" => return Self::Float(f64::NAN),
            ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => {
                return Self::Float(f64::INFINITY);
            }
            "-.inf" | "-.Inf" | "-.INF" => return Self::Float(f64::NEG_INFINITY),
            _ => {}
        }
        match text.as_bytes()[0] {
            b'.' => fraction(text).map_or(Self::Text, Self::Float),
            b'0'..=b'9' | b'+' | b'-' => number(&text.replace('_', "")),
            _ => Self::Text,
        }
    }

    /// Returns the value of a scalar with one of YAML's own tags. `None` if the text is not of that
    /// type.
    pub(super) fn of_tagged(tag: &str, text: &str) -> Option<Self> {
        let plain = Self::of_plain(text);
        match (tag, plain) {
            ("null", Self::Null)
            | ("bool", Self::Bool(_))
            | ("int", Self::Integer(_) | Self::Unsigned(_))
            | ("float", Self::Float(_)) => Some(plain),
            ("float", Self::Integer(value)) => Some(Self::Float(value as f64)),
            ("null" | "bool" | "int" | "float", _) => None,
            _ => Some(Self::Text),
        }
    }

    /// Returns the short form of the type's tag.
    pub(super) fn tag(self) -> &'static str {
        match self {
            Self::Null => "!!null",
            Self::Bool(_) => "!!bool",
            Self::Integer(_) | Self::Unsigned(_) => "!!int",
            Self::Float(_) => "!!float",
            Self::Text => "!!str",
        }
    }
}

/// Parses a number without underscores: decimal, `0x`, `0o`, `0b`, a leading zero for octal, or a
/// decimal float.
fn number(text: &str) -> Value {
    let (negative, digits) = match text.as_bytes()[0] {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    match magnitude(digits) {
        Some(value) if negative => {
            if let Some(value) = 0_i64.checked_sub_unsigned(value) {
                return Value::Integer(value);
            }
        }
        Some(value) => match i64::try_from(value) {
            Ok(value) => return Value::Integer(value),
            // The library accepts no sign before a number that needs all 64 bits: the text is then
            // a float.
            Err(_) if !text.starts_with('+') => return Value::Unsigned(value),
            Err(_) => {}
        },
        None => {}
    }
    if is_decimal_float(digits) {
        finite(text).map_or(Value::Text, Value::Float)
    } else {
        Value::Text
    }
}

/// Parses a whole number without sign. `None` if the text is not one or has more than 64 bits.
fn magnitude(digits: &str) -> Option<u64> {
    let (radix, body) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &digits[2..]),
        [b'0', b'o' | b'O', ..] => (8, &digits[2..]),
        [b'0', b'b' | b'B', ..] => (2, &digits[2..]),
        [b'0', _, ..] => (8, &digits[1..]),
        _ => (10, digits),
    };
    match body.as_bytes().first() {
        // The standard library would accept a second sign here.
        Some(b'+' | b'-') | None => None,
        Some(_) => u64::from_str_radix(body, radix).ok(),
    }
}

/// Returns whether the text is `.5`, `5`, `5.` or `5.5`, each with an optional exponent.
fn is_decimal_float(text: &str) -> bool {
    let (mantissa, exponent) = match text.find(['e', 'E']) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    };
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let mantissa_is_number = match mantissa.split_once('.') {
        Some((whole, fraction)) => {
            digits(whole) && digits(fraction) && !(whole.is_empty() && fraction.is_empty())
        }
        None => digits(mantissa) && !mantissa.is_empty(),
    };
    let exponent_is_number = exponent.is_none_or(|exponent| {
        let unsigned = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        digits(unsigned) && !unsigned.is_empty()
    });
    mantissa_is_number && exponent_is_number
}

/// Parses a number that begins with its point. Underscores are allowed between digits only.
fn fraction(text: &str) -> Option<f64> {
    let parts: Vec<&str> = text.split('_').collect();
    let is_digit = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_digit);
    let joins =
        |pair: &[&str]| is_digit(pair[0].as_bytes().last()) && is_digit(pair[1].as_bytes().first());
    if parts.windows(2).all(joins) {
        finite(&parts.concat())
    } else {
        None
    }
}

fn finite(text: &str) -> Option<f64> {
    text.parse().ok().filter(|value: &f64| value.is_finite())
}

#[cfg(test)]
mod tests {
    use super::Value::{self, Bool, Float, Integer, Null, Text, Unsigned};

    #[test]
    fn plain_scalars_have_the_types_of_yaml_1_1() {
        let table: [(&str, Value); 50] = [
            ("", Null),
            ("~", Null),
            ("null", Null),
            ("nil", Text),
            ("yes", Bool(true)),
            ("y", Bool(true)),
            ("On", Bool(true)),
            ("off", Bool(false)),
            ("N", Bool(false)),
            ("tRue", Text),
            ("0", Integer(0)),
            ("5", Integer(5)),
            ("+5", Integer(5)),
            ("-5", Integer(-5)),
            ("0x10", Integer(16)),
            ("-0x10", Integer(-16)),
            ("0o17", Integer(15)),
            ("017", Integer(15)),
            ("0b101", Integer(5)),
            ("1_000", Integer(1000)),
            ("9223372036854775807", Integer(i64::MAX)),
            ("-9223372036854775808", Integer(i64::MIN)),
            ("9223372036854775808", Unsigned(1 << 63)),
            ("+9223372036854775808", Float(9_223_372_036_854_775_808.0)),
            ("18446744073709551616", Float(18_446_744_073_709_551_616.0)),
            ("08", Float(8.0)),
            ("0.25", Float(0.25)),
            (".5", Float(0.5)),
            (".1_0", Float(0.1)),
            ("._5", Text),
            (".1__0", Text),
            ("5.", Float(5.0)),
            ("-5e-1", Float(-0.5)),
            ("1e3", Float(1000.0)),
            (".inf", Float(f64::INFINITY)),
            ("-.Inf", Float(f64::NEG_INFINITY)),
            ("1e999", Text),
            ("1e", Text),
            ("1.2.3", Text),
            ("10.0.0.1", Text),
            ("2001-01-01", Text),
            ("12:30", Text),
            ("+", Text),
            ("-", Text),
            ("--5", Text),
            ("0x", Text),
            (".", Text),
            ("5s", Text),
            ("_5", Text),
            ("second", Text),
        ];
        for (text, expected) in table {
            assert_eq!(Value::of_plain(text), expected, "{text:?}");
        }
        assert!(matches!(Value::of_plain(".nan"), Float(value) if value.is_nan()));
    }

    #[test]
    fn a_tag_is_obeyed_or_refused() {
        let table = [
            ("str", "5", Some(Text)),
            ("int", "5", Some(Integer(5))),
            ("int", "five", None),
            ("float", "5", Some(Float(5.0))),
            ("bool", "yes", Some(Bool(true))),
            ("bool", "5", None),
            ("null", "5", None),
            ("timestamp", "2001-01-01", Some(Text)),
        ];
        for (tag, text, expected) in table {
            assert_eq!(Value::of_tagged(tag, text), expected, "!!{tag} {text}");
        }
    }
}
