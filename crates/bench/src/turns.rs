//! How long a comparison measures, and where its figures go.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

/// Arguments that all comparisons have.
#[derive(Args)]
pub(crate) struct Turns {
    /// Turns of each variant, one variant after the other; the table shows medians.
    #[arg(long, default_value_t = 3)]
    pub(crate) rounds: u32,
    /// Length of a turn: 2s, 500ms.
    #[arg(long, default_value = "2s", value_parser = crate::ratelimit::duration)]
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
