//! YAML scalars: their text, and the value of the text by the rules of YAML 1.1 that the
//! reference's library uses.

use std::fmt;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};
use tidegate_yaml::{ScalarStyle, Schema};

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
    pub(super) value: ScalarValue,
}

/// The type and value of a scalar.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum ScalarValue {
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

    fn scalar(text: String, form: ScalarStyle<'_>) -> Result<Scalar, String> {
        let value = match form {
            ScalarStyle::Plain => ScalarValue::from_plain(&text),
            ScalarStyle::Quoted => ScalarValue::Text,
            ScalarStyle::Tagged(tag) => match tag.strip_prefix(OWN_TAG_PREFIX) {
                Some("binary") => {
                    let bytes = BASE64
                        .decode(text.replace(['\r', '\n'], ""))
                        .map_err(|_| "!!binary value contains invalid base64 data")?;
                    let text =
                        String::from_utf8(bytes).map_err(|_| "!!binary value is not UTF-8")?;
                    return Ok(Scalar {
                        text,
                        value: ScalarValue::Text,
                    });
                }
                Some(tag) => ScalarValue::from_tagged(tag, &text).ok_or_else(|| {
                    format!(
                        "cannot decode {} `{text}` as a !!{tag}",
                        ScalarValue::from_plain(&text).tag()
                    )
                })?,
                None => ScalarValue::Text,
            },
        };
        Ok(Scalar { text, value })
    }
}

/// Base64 as the reference's library reads it: unused bits at the end are ignored.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

impl fmt::Display for Scalar {
    /// Writes the value as Go prints it, because the reference's messages contain it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value {
            ScalarValue::Null => f.write_str("<nil>"),
            ScalarValue::Bool(value) => write!(f, "{value}"),
            ScalarValue::Integer(value) => write!(f, "{value}"),
            ScalarValue::Unsigned(value) => write!(f, "{value}"),
            ScalarValue::Float(value) if value.is_nan() => f.write_str("NaN"),
            ScalarValue::Float(value) if value.is_infinite() => {
                f.write_str(if value > 0.0 { "+Inf" } else { "-Inf" })
            }
            ScalarValue::Float(value) if value != 0.0 && !(1e-4..1e21).contains(&value.abs()) => {
                write!(f, "{value:e}")
            }
            ScalarValue::Float(value) => write!(f, "{value}"),
            ScalarValue::Text => f.write_str(&self.text),
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

impl ScalarValue {
    /// Returns the value of a scalar without quotes.
    pub(super) fn from_plain(text: &str) -> Self {
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
    pub(super) fn from_tagged(tag: &str, text: &str) -> Option<Self> {
        let plain = Self::from_plain(text);
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
fn number(text: &str) -> ScalarValue {
    let (negative, digits) = match text.as_bytes()[0] {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    match magnitude(digits) {
        Some(value) if negative => {
            if let Some(value) = 0_i64.checked_sub_unsigned(value) {
                return ScalarValue::Integer(value);
            }
        }
        Some(value) => match i64::try_from(value) {
            Ok(value) => return ScalarValue::Integer(value),
            // The library accepts no sign before a number that needs all 64 bits: the text is then
            // a float.
            Err(_) if !text.starts_with('+') => return ScalarValue::Unsigned(value),
            Err(_) => {}
        },
        None => {}
    }
    if is_decimal_float(digits) {
        finite(text).map_or(ScalarValue::Text, ScalarValue::Float)
    } else {
        ScalarValue::Text
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
    use super::ScalarValue::{self, Bool, Float, Integer, Null, Text, Unsigned};

    #[test]
    fn plain_scalars_have_the_types_of_yaml_1_1() {
        let table: [(&str, ScalarValue); 50] = [
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
            assert_eq!(ScalarValue::from_plain(text), expected, "{text:?}");
        }
        assert!(matches!(ScalarValue::from_plain(".nan"), Float(value) if value.is_nan()));
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
            assert_eq!(
                ScalarValue::from_tagged(tag, text),
                expected,
                "!!{tag} {text}"
            );
        }
    }
}
