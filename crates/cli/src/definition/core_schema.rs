//! Scalars of YAML's core schema 1.2, converted to JSON.

use tidegate_yaml::{ScalarStyle, Schema};

/// Schema of the YAML reader whose scalars are JSON texts. Tags are refused.
#[derive(Debug)]
pub(super) enum CoreSchema {}

impl Schema for CoreSchema {
    type Scalar = String;

    fn scalar(text: String, form: ScalarStyle<'_>) -> Result<String, String> {
        match form {
            ScalarStyle::Plain => plain(&text),
            ScalarStyle::Quoted => Ok(quoted(&text)),
            ScalarStyle::Tagged(tag) => Self::collection_tag(tag).map(|()| text),
        }
    }

    fn collection_tag(_: &str) -> Result<(), String> {
        Err("tags are not understood here".to_owned())
    }
}

/// A text as a JSON string.
pub(super) fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("a text is JSON")
}

/// The value of a scalar without quotes in the core schema, as JSON. Numbers keep all of their
/// digits.
fn plain(text: &str) -> Result<String, String> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Ok("null".to_owned()),
        "true" | "True" | "TRUE" => return Ok("true".to_owned()),
        "false" | "False" | "FALSE" => return Ok("false".to_owned()),
        _ => {}
    }
    if is_endless(text) {
        return Err(format!(
            "{text} is a number that JSON does not have; in quotes it is a text"
        ));
    }
    for (prefix, radix) in [("0x", 16), ("0o", 8)] {
        if let Some(digits) = text.strip_prefix(prefix)
            && !digits.is_empty()
            && digits.chars().all(|digit| digit.is_digit(radix))
        {
            let whole = u64::from_str_radix(digits, radix);
            return whole
                .map(|whole| whole.to_string())
                .map_err(|_| too_large(text));
        }
    }
    Ok(decimal(text).unwrap_or_else(|| quoted(text)))
}

fn too_large(text: &str) -> String {
    format!(
        "{text} is larger than {}; write it in decimal digits, or in quotes as a text",
        u64::MAX
    )
}

/// Whether the scalar is infinity or NaN.
fn is_endless(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    matches!(unsigned, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN")
}

/// A decimal number in the syntax of JSON: without a plus, without leading zeros, and with a digit
/// on both sides of the point.
fn decimal(text: &str) -> Option<String> {
    let (minus, unsigned) = match text.strip_prefix('-') {
        Some(unsigned) => ("-", unsigned),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    let (number, exponent) = unsigned.split_at(unsigned.find(['e', 'E']).unwrap_or(unsigned.len()));
    let (whole, fraction) = number.split_at(number.find('.').unwrap_or(number.len()));
    let (fraction, is_real) = fraction
        .strip_prefix('.')
        .map_or(("", false), |fraction| (fraction, true));
    let power = exponent
        .get(1..)
        .map(|power| power.strip_prefix(['-', '+']).unwrap_or(power));
    let is_power = power.is_none_or(|power| !power.is_empty() && is_digits(power));
    if (whole.is_empty() && fraction.is_empty())
        || !is_digits(whole)
        || !is_digits(fraction)
        || !is_power
    {
        return None;
    }
    let whole = Some(whole.trim_start_matches('0'))
        .filter(|whole| !whole.is_empty())
        .unwrap_or("0");
    let point = if is_real { "." } else { "" };
    let fraction = if is_real && fraction.is_empty() {
        "0"
    } else {
        fraction
    };
    Some([minus, whole, point, fraction, exponent].concat())
}

fn is_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}
