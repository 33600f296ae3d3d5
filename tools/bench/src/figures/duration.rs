//! Parses durations in arguments.

use std::time::Duration;

use anyhow::Context as _;

/// Parses `10s`, `250ms` or a bare number of seconds.
pub(crate) fn duration(text: &str) -> anyhow::Result<Duration> {
    let (number, scale) = match text.strip_suffix("ms") {
        Some(number) => (number, 0.001),
        None => (text.strip_suffix('s').unwrap_or(text), 1.0),
    };
    let number: f64 = number
        .parse()
        .with_context(|| format!("'{text}' is not a duration such as 10s or 500ms"))?;
    Duration::try_from_secs_f64(number * scale)
        .with_context(|| format!("'{text}' is not a possible duration"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read() {
        let check = |text, millis: Option<u64>| {
            let wanted = millis.map(Duration::from_millis);
            assert_eq!(duration(text).ok(), wanted, "{text}");
        };
        check("10s", Some(10_000));
        check("250ms", Some(250));
        check("1.5", Some(1_500));
        check("-1s", None);
        check("ten", None);
    }
}
