//! Times in the form of RFC 3339, UTC, with microseconds.

use std::fmt;

use jiff::civil::Time;
use jiff::fmt::temporal::{DateTimePrinter, Pieces};
use serde::{Serialize, Serializer};
use tidegate_workflow::Timestamp;
#[cfg(test)]
use utoipa::ToSchema;

/// A moment as RFC 3339 writes it: UTC with microseconds, such as `2026-11-21T12:00:00.000000Z`.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(test, derive(ToSchema), schema(as = Time, value_type = String, format = DateTime))]
pub(crate) struct Rfc3339(pub(crate) Timestamp);

impl From<tidegate_ratelimit::Timestamp> for Rfc3339 {
    fn from(at: tidegate_ratelimit::Timestamp) -> Self {
        Self(Timestamp::from_micros(at.0))
    }
}

impl Rfc3339 {
    fn text(self) -> String {
        const PRINTER: DateTimePrinter = DateTimePrinter::new().precision(Some(6));
        let micros = i64::try_from(self.0.micros()).unwrap_or(i64::MAX);
        let moment = jiff::Timestamp::from_microsecond(micros).unwrap_or(jiff::Timestamp::MAX);
        // All times have this length. A list of a thousand workflows has four thousand times.
        let mut text = String::with_capacity("2026-11-21T12:00:00.000000Z".len());
        PRINTER
            .print_timestamp(&moment, &mut text)
            .expect("a String takes any text");
        text
    }
}

impl fmt::Display for Rfc3339 {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text())
    }
}

impl Serialize for Rfc3339 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text())
    }
}

/// Reads a time of 1970 or later, in any time zone. Digits after the microsecond are cut, and a
/// leap second is the second before it. Times in the last two days of the year 9999 become the last
/// time that can be written.
pub(crate) fn parse(text: &str) -> Option<Timestamp> {
    let moment = text.parse().ok().or_else(|| last_representable(text))?;
    u64::try_from(moment.as_microsecond())
        .ok()
        .map(Timestamp::from_micros)
}

/// Reads the end of a time range. A text without microseconds means the end of its last digit,
/// because some programs keep milliseconds or seconds.
pub(crate) fn parse_range_end(text: &str) -> Option<Timestamp> {
    let digits = text.split_once(['.', ',']).map_or(0, |(_, fraction)| {
        fraction
            .bytes()
            .take_while(u8::is_ascii_digit)
            .count()
            .min(MICROSECOND_DIGITS as usize)
    });
    let rest = 10_u64.pow(MICROSECOND_DIGITS - digits as u32) - 1;
    Some(Timestamp::from_micros(
        parse(text)?.micros().saturating_add(rest),
    ))
}

/// Number of digits of microseconds.
const MICROSECOND_DIGITS: u32 = 6;

/// Returns the last time that can be written, if the text is a later one: the end of 9999 stands
/// for the end of time.
fn last_representable(text: &str) -> Option<jiff::Timestamp> {
    let pieces = Pieces::parse(text).ok()?;
    let (time, offset): (Time, _) = (pieces.time()?, pieces.to_numeric_offset()?);
    let moment = pieces.date().to_datetime(time);
    (moment > offset.to_datetime(jiff::Timestamp::MAX)).then_some(jiff::Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_with_few_digits_lasts_until_the_next() {
        let check = |text: &str, expected: &str| {
            assert_eq!(
                parse_range_end(text)
                    .map(|end| Rfc3339(end).to_string())
                    .as_deref(),
                Some(expected),
                "{text}"
            );
        };
        check("2026-11-21T12:00:00.123456Z", "2026-11-21T12:00:00.123456Z");
        check(
            "2026-11-21T12:00:00.123456789Z",
            "2026-11-21T12:00:00.123456Z",
        );
        check("2026-11-21T12:00:00.616Z", "2026-11-21T12:00:00.616999Z");
        check("2026-11-21T13:00:00.6+01:00", "2026-11-21T12:00:00.699999Z");
        check("2026-11-21T12:00:00Z", "2026-11-21T12:00:00.999999Z");
        assert!(parse_range_end("2026").is_none());
    }

    #[test]
    fn moments_are_written_and_read_back() {
        for (micros, text) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_782_400_000_000, "2000-02-29T00:00:00.000000Z"),
            (1_795_262_400_000_001, "2026-11-21T12:00:00.000001Z"),
            (4_107_542_399_999_999, "2100-02-28T23:59:59.999999Z"),
            (4_107_542_400_000_000, "2100-03-01T00:00:00.000000Z"),
        ] {
            let moment = Timestamp::from_micros(micros);
            assert_eq!(Rfc3339(moment).to_string(), text);
            assert_eq!(parse(text), Some(moment), "{text}");
        }
    }

    #[test]
    fn zones_and_fractions_are_read_and_nonsense_is_not() {
        let check = |text: &str, micros: Option<u64>| {
            assert_eq!(parse(text), micros.map(Timestamp::from_micros), "{text}");
        };
        check("1970-01-02T01:00:00+01:00", Some(86_400_000_000));
        check("1970-01-01t00:00:00.5-00:01", Some(60_500_000));
        check("1970-01-01 00:00:01.1234567z", Some(1_123_456));
        check("1970-01-01T00:01Z", Some(60_000_000));
        check("1970-01-01T00:00:60Z", Some(59_000_000));
        let last = jiff::Timestamp::MAX.as_microsecond() as u64;
        check("9999-12-31T23:59:59Z", Some(last));
        check("9999-12-31T23:59:59.999999Z", Some(last));
        check("9999-12-31T00:00:00-12:00", Some(last));
        check("9999-12-30T22:00:00Z", Some(last - 999_999));
        for text in [
            "",
            "2026-11-21",
            "2026-11-21T12:00:00",
            "2026-13-01T00:00:00Z",
            "2026-1-01T00:00:00Z",
            "2026-02-29T00:00:00Z",
            "2026-04-31T00:00:00Z",
            "1969-12-31T23:59:59Z",
            "1970-01-01T00:00:00+00:01",
            "2026-11-21T24:00:00Z",
            "2026-11-21T12:00:00.Z",
            "2026-11-21T12:00:00Zx",
            "9999-12-31",
            "9999-12-31T23:59:59",
            "9999-12-32T00:00:00Z",
            "10000-01-01T00:00:00Z",
        ] {
            check(text, None);
        }
    }
}
