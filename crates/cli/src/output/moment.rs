//! Points in time and durations: parsing of user input, and texts for people.

use std::fmt;
use std::time::Duration;

use jiff::fmt::friendly::SpanParser;
use jiff::{SpanRelativeTo, Timestamp};
use serde::{Deserialize, Deserializer, de};

/// Limit of a duration: a hundred years. A longer one is taken for a mistake.
const MAX_SPAN: Duration = Duration::from_secs(100 * 365 * 86_400);

/// A point in time as the server writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(Timestamp);

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse()
            .map(Self)
            .map_err(|_| de::Error::custom("it is not a time of RFC 3339"))
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6}", self.0)
    }
}

impl Moment {
    pub(crate) fn now() -> Self {
        Self(Timestamp::now())
    }

    /// The time from `earlier` to `self`; zero if `earlier` is later.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        Duration::try_from(self.0.duration_since(earlier.0)).unwrap_or_default()
    }

    /// Text with a resolution of one second, for people.
    pub(crate) fn to_the_second(self) -> String {
        self.to_string()[..19].replace('T', " ") + "Z"
    }

    /// The moment with a resolution of one second, and its distance from `now`.
    pub(crate) fn with_distance(self, now: Self) -> String {
        format!("{}  {}", self.to_the_second(), self.relative(now))
    }

    /// Distance from `now`, such as `5m ago` or `in 2h`.
    pub(crate) fn relative(self, now: Self) -> String {
        if self > now {
            return format!("in {}", short(self.since(now)));
        }
        let since = now.since(self);
        if since < Duration::from_secs(1) {
            "just now".to_owned()
        } else {
            format!("{} ago", short(since))
        }
    }

    /// Parses user input: a time of RFC 3339, a date, or a duration that is subtracted from `now`.
    pub(crate) fn parse(text: &str, now: Self) -> Option<Self> {
        if let Some(span) = span(text) {
            return Some(Self(
                now.0.checked_sub(span).ok()?.max(Timestamp::UNIX_EPOCH),
            ));
        }
        text.parse()
            .or_else(|_| format!("{text}T00:00:00Z").parse())
            .ok()
            .map(Self)
    }
}

/// Parses a duration, for clap.
///
/// # Errors
/// The text is not a duration of at most a hundred years.
pub fn span_of(text: &str) -> Result<Duration, String> {
    let number = text.trim().parse::<f64>().is_ok();
    let hint = if number {
        format!("a number without a unit; write {text}s or {text}ms")
    } else {
        String::new()
    };
    let expected = || "expected a time span such as 500ms, 30s, 1h30m or 7d".to_owned();
    span(text).ok_or_else(|| if number { hint } else { expected() })
}

fn span(text: &str) -> Option<Duration> {
    let span = SpanParser::new().parse_span(text).ok()?;
    let span = span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?;
    Duration::try_from(span)
        .ok()
        .filter(|span| *span <= MAX_SPAN)
}

/// A duration in its one or two largest units.
pub(crate) fn short(span: Duration) -> String {
    let seconds = span.as_secs();
    let pair = |large: u64, one: &str, small: u64, other: &str| match small {
        0 => format!("{large}{one}"),
        _ => format!("{large}{one}{small}{other}"),
    };
    match seconds {
        0 if span.as_millis() == 0 => format!("{}us", span.as_micros()),
        0 => format!("{}ms", span.as_millis()),
        1..10 => format!("{:.1}s", span.as_secs_f64()),
        10..60 => format!("{seconds}s"),
        60..3_600 => pair(seconds / 60, "m", seconds % 60, "s"),
        3_600..86_400 => pair(seconds / 3_600, "h", seconds / 60 % 60, "m"),
        _ => pair(seconds / 86_400, "d", seconds / 3_600 % 24, "h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_795_262_400_000_000;

    fn moment(micros: i64) -> Moment {
        Moment(Timestamp::from_microsecond(micros).unwrap())
    }

    #[test]
    fn spans_are_shown_by_their_largest_units() {
        let check = |millis: u64, expected: &str| {
            assert_eq!(short(Duration::from_millis(millis)), expected)
        };
        for (millis, expected) in [
            (0, "0us"),
            (999, "999ms"),
            (1_250, "1.2s"),
            (59_999, "59s"),
            (60_000, "1m"),
            (3_599_000, "59m59s"),
            (7_260_000, "2h1m"),
            (90_000_000, "1d1h"),
            (864_000_000, "10d"),
        ] {
            check(millis, expected);
        }
    }

    #[test]
    fn moments_are_told_from_now() {
        let check = |micros: i64, expected: &str| {
            assert_eq!(moment(micros).relative(moment(NOW)), expected)
        };
        check(NOW, "just now");
        check(NOW - 61_000_000, "1m1s ago");
        check(NOW + 2_000_000, "in 2.0s");
    }

    #[test]
    fn people_write_spans_dates_and_times() {
        let check = |text: &str, expected: Option<&str>| {
            assert_eq!(
                Moment::parse(text, moment(NOW))
                    .map(|moment| moment.to_string())
                    .as_deref(),
                expected,
                "{text}"
            );
        };
        check("1h", Some("2026-11-21T11:00:00.000000Z"));
        check("2026-11-20", Some("2026-11-20T00:00:00.000000Z"));
        check(
            "2026-11-20T10:00:00+02:00",
            Some("2026-11-20T08:00:00.000000Z"),
        );
        check("36500d", Some("1970-01-01T00:00:00.000000Z"));
        for text in ["", "yesterday", "2026-11", "7"] {
            check(text, None);
        }
    }
}
