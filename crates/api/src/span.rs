//! Spans of time as people write them: `500ms`, `30s`, `1h30m`, `7d`.

use std::time::Duration;

use tidegate_workflow::Retention;

/// A hundred years: what is longer was meant otherwise, and a moment so far ahead still has a place in the store.
pub const LONGEST: Duration = Duration::from_secs(100 * 365 * 86_400);

/// Reads a span of at most [`LONGEST`].
pub fn read(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut seconds = 0.0_f64;
    loop {
        let end = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
        let number: f64 = rest[..end].parse().ok()?;
        rest = &rest[end..];
        let end = rest.find(|letter: char| letter.is_ascii_digit()).unwrap_or(rest.len());
        seconds += number
            * match &rest[..end] {
                "us" | "µs" => 1e-6,
                "ms" => 1e-3,
                "s" => 1.0,
                "m" => 60.0,
                "h" => 3_600.0,
                "d" => 86_400.0,
                _ => return None,
            };
        rest = &rest[end..];
        if rest.is_empty() {
            return of_seconds(seconds);
        }
    }
}

/// A span of that many seconds, to the microsecond, if it is at most [`LONGEST`].
pub fn of_seconds(seconds: f64) -> Option<Duration> {
    let within = (0.0..=LONGEST.as_secs_f64()).contains(&seconds);
    within.then(|| Duration::from_micros((seconds * 1e6).round() as u64))
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
        for text in ["", "s", "5", "1 s", "-1s", "1x", "1s2", "36501d", "1..2s", "1e3s", "é"] {
            check(text, None);
        }
    }
}
