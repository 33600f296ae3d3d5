//! Times for people, and times that people write.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer, de};
use tidegate_workflow::Timestamp;

use crate::http::v1::time::{Rfc3339, read};
use crate::span;

/// A moment as the server writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment(pub(super) Timestamp);

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        read(&text).map(Self).ok_or_else(|| de::Error::custom("it is not a time of RFC 3339"))
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Rfc3339(self.0).fmt(f)
    }
}

impl Moment {
    /// To the second, for people.
    pub(super) fn to_the_second(self) -> String {
        self.to_string()[..19].replace('T', " ") + "Z"
    }

    /// How far it is from `now`, such as `5m ago` or `in 2h`.
    pub(super) fn relative(self, now: Timestamp) -> String {
        if self.0 > now {
            return format!("in {}", short(self.0.since(now)));
        }
        let since = now.since(self.0);
        if since < Duration::from_secs(1) { "just now".to_owned() } else { format!("{} ago", short(since)) }
    }

    /// A time that a person wrote: RFC 3339, a date, or a span that is counted back from `now`.
    pub(super) fn parse(text: &str, now: Timestamp) -> Option<Self> {
        if let Some(span) = span::read(text) {
            let back = u64::try_from(span.as_micros()).ok()?;
            return Some(Self(Timestamp::from_micros(now.micros().saturating_sub(back))));
        }
        read(text).or_else(|| read(&format!("{text}T00:00:00Z"))).map(Self)
    }
}

/// The one or two largest units of a span.
pub(super) fn short(span: Duration) -> String {
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

    const NOW: Timestamp = Timestamp::from_micros(1_795_262_400_000_000);

    #[test]
    fn spans_are_shown_by_their_largest_units() {
        let check = |millis: u64, expected: &str| assert_eq!(short(Duration::from_millis(millis)), expected);
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
        let check = |micros: u64, expected: &str| {
            assert_eq!(Moment(Timestamp::from_micros(micros)).relative(NOW), expected);
        };
        check(NOW.micros(), "just now");
        check(NOW.micros() - 61_000_000, "1m1s ago");
        check(NOW.micros() + 2_000_000, "in 2.0s");
    }

    #[test]
    fn people_write_spans_dates_and_times() {
        let check = |text: &str, expected: Option<&str>| {
            assert_eq!(Moment::parse(text, NOW).map(|moment| moment.to_string()).as_deref(), expected, "{text}");
        };
        check("1h", Some("2026-11-21T11:00:00.000000Z"));
        check("2026-11-20", Some("2026-11-20T00:00:00.000000Z"));
        check("2026-11-20T10:00:00+02:00", Some("2026-11-20T08:00:00.000000Z"));
        check("36500d", Some("1970-01-01T00:00:00.000000Z"));
        for text in ["", "yesterday", "2026-11", "7"] {
            check(text, None);
        }
    }
}
