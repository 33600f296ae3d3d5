//! Spans of time as people write them: `500ms`, `30s`, `1h30m`, `7d`.

use std::time::Duration;

use jiff::SpanRelativeTo;
use jiff::fmt::friendly::SpanParser;
use tidegate_workflow::Retention;

/// A hundred years: what is longer was meant otherwise, and a moment so far ahead still has a place in the store.
pub const LONGEST: Duration = Duration::from_secs(100 * 365 * 86_400);

/// Reads a span of at most [`LONGEST`], to the microsecond. A day has 24 hours.
pub fn read(text: &str) -> Option<Duration> {
    let span = SpanParser::new().parse_span(text).ok()?;
    let span = Duration::try_from(span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?).ok()?;
    (span <= LONGEST).then(|| Duration::from_micros(span.as_micros() as u64))
}

/// Reads a span, or `forever`.
pub fn retention(text: &str) -> Option<Retention> {
    if text == "forever" { Some(Retention::Forever) } else { read(text).map(Retention::For) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_sums_of_numbers_with_units() {
        let check = |text: &str, micros: Option<u64>| {
            assert_eq!(read(text), micros.map(Duration::from_micros), "{text}");
        };
        check("500ms", Some(500_000));
        check("0s", Some(0));
        check("1h30m", Some(5_400_000_000));
        check("7d", Some(604_800_000_000));
        check("1.5s", Some(1_500_000));
        check("1.0001ms", Some(1_000));
        check("36500d", Some(3_153_600_000_000_000));
        check("1 hour, 30 mins", Some(5_400_000_000));
        for text in ["", "s", "5", "0", "-1s", "1s ago", "1x", "1s2", "36501d", "1..2s", "1e3s", "é", "1y", "1mo"] {
            check(text, None);
        }
    }
}
