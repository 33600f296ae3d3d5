//! Parsers of numbers, booleans and durations in the syntax of Go, as the reference uses it.

use std::time::Duration;

/// Parses the words that Go's `strconv.ParseBool` accepts.
pub(crate) fn boolean(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

/// Parses an integer with a sign, a base prefix, and underscores between digits.
pub(super) fn integer(text: &str) -> Option<i64> {
    let (sign, digits) = match text.as_bytes().first()? {
        b'-' => ("-", &text[1..]),
        b'+' => ("", &text[1..]),
        _ => ("", text),
    };
    let lower = digits.to_ascii_lowercase();
    let (radix, digits) = match lower.as_bytes() {
        [b'0', b'x', ..] => (16, &lower[2..]),
        [b'0', b'b', ..] => (2, &lower[2..]),
        [b'0', b'o', ..] => (8, &lower[2..]),
        [b'0', _, ..] => (8, &lower[1..]),
        _ => (10, lower.as_str()),
    };
    if digits.starts_with(['+', '-']) || digits.is_empty() {
        return None;
    }
    i64::from_str_radix(&format!("{sign}{}", digits.replace('_', "")), radix).ok()
}

/// Parses a duration such as `1h30m`. A negative one is refused, since no variable has a use for
/// it.
///
/// This is not jiff's parser, which refuses texts that Go accepts (`.5s`, `1.5h30m`, `30m1h`, a
/// bare `0`) and accepts texts that Go refuses (`1 s`, `5 seconds`, `1s ago`). The variables must
/// mean the same in both servers.
pub(super) fn duration(text: &str) -> Option<Duration> {
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    if rest.is_empty() {
        return None;
    }
    let mut nanoseconds = 0.0_f64;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(digits);
        let end = after
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        nanoseconds += number.parse::<f64>().ok()? * unit_nanoseconds(unit)?;
        rest = after;
    }
    // Go has the same limit of i64::MAX nanoseconds, about 292 years.
    (nanoseconds <= i64::MAX as f64).then(|| Duration::from_nanos(nanoseconds as u64))
}

fn unit_nanoseconds(unit: &str) -> Option<f64> {
    match unit {
        "ns" => Some(1.0),
        // Unicode has two letters that look like a mu.
        "us" | "\u{b5}s" | "\u{3bc}s" => Some(1e3),
        "ms" => Some(1e6),
        "s" => Some(1e9),
        "m" => Some(60e9),
        "h" => Some(3600e9),
        _ => None,
    }
}
