//! How long a comparison measures, and where its figures go.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;

/// Arguments that all comparisons have.
#[derive(Args)]
pub(crate) struct Turns {
    /// Turns of each variant, one variant after the other; the table shows medians.
    #[arg(long, default_value_t = 3)]
    pub(crate) rounds: u32,
    /// Length of a turn: 2s, 500ms.
    #[arg(long, default_value = "2s", value_parser = crate::figures::duration)]
    pub(crate) turn: Duration,
    /// The folder that the figures go to as JSON.
    #[arg(long, default_value = "bench-results")]
    pub(crate) results: PathBuf,
}

impl Turns {
    /// Time before each turn that is not measured: connections open, counters fill.
    pub(crate) fn warmup(&self) -> Duration {
        (self.turn / 4).min(Duration::from_millis(500))
    }
}

/// Reads `10s`, `250ms` or a bare number of seconds.
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
            assert_eq!(
                duration(text).ok(),
                millis.map(Duration::from_millis),
                "{text}"
            );
        };
        check("10s", Some(10_000));
        check("250ms", Some(250));
        check("1.5", Some(1_500));
        check("-1s", None);
        check("ten", None);
    }
}
