//! Moments as RFC 3339 writes them, UTC, with microseconds.

use std::fmt;

use serde::{Serialize, Serializer};
use tidegate_workflow::Timestamp;
#[cfg(test)]
use utoipa::ToSchema;

const DAY: u64 = 86_400;

/// A moment as RFC 3339 writes it: UTC with microseconds, such as `2026-11-21T12:00:00.000000Z`.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(test, derive(ToSchema), schema(as = Time, value_type = String, format = DateTime))]
pub(crate) struct Rfc3339(pub(crate) Timestamp);

impl fmt::Display for Rfc3339 {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, micros) = (self.0.micros() / 1_000_000, self.0.micros() % 1_000_000);
        let (year, month, day) = date(seconds / DAY);
        let (hour, minute, second) = (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
        write!(formatter, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
    }
}

impl Serialize for Rfc3339 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The date that many days after 1970-01-01. Years are counted from March, so that the leap day is the last of its year.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468; // from 0000-03-01 to 1970-01-01
    let (era, of_era) = (days / 146_097, days % 146_097); // 400 years
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (400 * era + year + u64::from(month <= 2), month, day)
}

/// The other way.
fn days(year: u64, month: u64, day: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let shifted = if month > 2 { month - 3 } else { month + 9 };
    let of_era = year % 400 * 365 + year % 400 / 4 - year % 400 / 100 + (153 * shifted + 2) / 5 + day - 1;
    year / 400 * 146_097 + of_era - 719_468
}

/// Reads a moment of 1970 or later, in any time zone. Digits beyond the microsecond are cut.
pub(crate) fn read(text: &str) -> Option<Timestamp> {
    let (date, rest) = text.split_once(['T', 't', ' '])?;
    let mut parts = date.splitn(3, '-').map(|part| number(part, if part.len() == 4 { 4 } else { 2 }));
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    if self::date(days(year, month, day)) != (year, month, day) {
        return None; // such as the 30th of February
    }
    let at = rest.find(['Z', 'z', '+', '-'])?;
    let (clock, zone) = rest.split_at(at);
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let mut parts = clock.splitn(3, ':').map(|part| number(part, 2));
    let (hour, minute, second) = (parts.next()??, parts.next()??, parts.next()??);
    if hour > 23 || minute > 59 || second > 60 || fraction.is_empty() || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let micros: u64 = format!("{fraction:0<6}")[..6].parse().ok()?;
    let seconds = days(year, month, day) * DAY + hour * 3_600 + minute * 60 + second;
    let seconds = match zone.as_bytes()[0] {
        b'+' => seconds.checked_sub(offset(&zone[1..])?)?,
        b'-' => seconds + offset(&zone[1..])?,
        _ if zone.len() == 1 => seconds,
        _ => return None,
    };
    Some(Timestamp::from_micros(seconds * 1_000_000 + micros))
}

fn offset(text: &str) -> Option<u64> {
    let (hours, minutes) = text.split_once(':')?;
    Some(number(hours, 2)? * 3_600 + number(minutes, 2)? * 60)
}

fn number(text: &str, digits: usize) -> Option<u64> {
    (text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert_eq!(read(text), Some(moment), "{text}");
        }
    }

    #[test]
    fn zones_and_fractions_are_read_and_nonsense_is_not() {
        let check = |text: &str, micros: Option<u64>| {
            assert_eq!(read(text), micros.map(Timestamp::from_micros), "{text}");
        };
        check("1970-01-02T01:00:00+01:00", Some(86_400_000_000));
        check("1970-01-01t00:00:00.5-00:01", Some(60_500_000));
        check("1970-01-01 00:00:01.1234567z", Some(1_123_456));
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
            "2026-11-21T12:00Z",
            "2026-11-21T12:00:00.Z",
            "2026-11-21T12:00:00Zx",
        ] {
            check(text, None);
        }
    }
}
