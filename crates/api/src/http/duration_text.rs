//! Durations as people write them: `500ms`, `30s`, `1h30m`, `7d`.

use std::time::Duration;

use jiff::SpanRelativeTo;
use jiff::fmt::friendly::SpanParser;
use tidegate_workflow::Retention;

/// Longest duration that is accepted: 100 years. A longer one is a mistake, and a time so far ahead
/// still fits the time fields of the store.
pub const MAX_DURATION: Duration = Duration::from_secs(100 * 365 * 86_400);

/// Units. A longer name comes before the names that it begins with.
const UNITS: [&str; 7] = ["us", "µs", "ms", "s", "m", "h", "d"];

/// Reads a duration of at most [`MAX_DURATION`], to the microsecond. A day has 24 hours.
pub fn parse(text: &str) -> Option<Duration> {
    // The parser also accepts clock times, signs, words and spaces. Other readers of the same text
    // do not.
    if !is_sum(text) {
        return None;
    }
    let span = SpanParser::new().parse_span(text).ok()?;
    let span =
        Duration::try_from(span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?).ok()?;
    let is_lost = span < Duration::from_micros(1) && !span.is_zero();
    (span <= MAX_DURATION && !is_lost).then(|| Duration::from_micros(span.as_micros() as u64))
}

/// Whether a text consists of numbers, each with a unit.
fn is_sum(text: &str) -> bool {
    let mut rest = text;
    while let Some(after) = after_part(rest) {
        rest = after;
    }
    rest.is_empty()
}

/// Returns the text after the first number and its unit.
fn after_part(text: &str) -> Option<&str> {
    let rest = after_digits(text)?;
    let rest = match rest.strip_prefix('.') {
        Some(fraction) => after_digits(fraction)?,
        None => rest,
    };
    UNITS.iter().find_map(|unit| rest.strip_prefix(unit))
}

/// Returns the text after the leading digits. `None` if there is no digit.
fn after_digits(text: &str) -> Option<&str> {
    let rest = text.trim_start_matches(|character: char| character.is_ascii_digit());
    (rest.len() < text.len()).then_some(rest)
}

/// Reads a duration, or `forever`.
pub fn retention(text: &str) -> Option<Retention> {
    if text == "forever" {
        Some(Retention::Forever)
    } else {
        parse(text).map(Retention::For)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_sums_of_numbers_with_units() {
        let check = |text: &str, micros: Option<u64>| {
            assert_eq!(parse(text), micros.map(Duration::from_micros), "{text}");
        };
        check("500ms", Some(500_000));
        check("0s", Some(0));
        check("1h30m", Some(5_400_000_000));
        check("7d", Some(604_800_000_000));
        check("1.5s", Some(1_500_000));
        check("1.0001ms", Some(1_000));
        check("36500d", Some(3_153_600_000_000_000));
        check("5us", Some(5));
        check("5µs", Some(5));
        check("1d12h", Some(129_600_000_000));
        for text in [
            "", "s", "5", "0", "-1s", "1s ago", "1x", "1s2", "36501d", "1..2s", "1e3s", "é", "1y",
            "1mo",
        ] {
            check(text, None);
        }
        for text in [
            "00:05:00",
            "1d 00:00:05",
            "1,5h",
            "1.5,5h",
            "5ns",
            "0.5us",
            "-0s",
            "+5s",
            "5s ",
            " 5s",
            "5 s",
            "1h 30m",
        ] {
            check(text, None);
        }
        for text in [
            "1 hour, 30 mins",
            "5sec",
            "5min",
            "5S",
            "1w",
            "1.s",
            ".5s",
            "١s",
            "PT5S",
            "30m1h",
            "1h1h",
            "5s\0",
        ] {
            check(text, None);
        }
    }
}
