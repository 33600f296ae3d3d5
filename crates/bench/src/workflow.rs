//! `tidegate-bench workflow`: workflows through the HTTP API, with workers that do nothing.
//!
//! Beside the figures of others, which were measured on the same kind of machine: Gush and BullMQ on Redis.

mod api;
mod creation;
mod execution;
mod listing;
mod recovery;
pub(crate) mod shapes;
mod work;

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use crate::figures::Spread;
use crate::figures::write_json;
use crate::machine::server;
pub(crate) use api::Api;
pub(crate) use work::work;

/// Arguments of the subcommand.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The server's program.
    #[arg(long, default_value = "target/release/tidegate")]
    server: PathBuf,
    /// Workflows that are listed, at most: 1,000, 10,000 and so on up to here.
    #[arg(long, default_value_t = 1_000_000)]
    workflows: usize,
    /// Pages read at each size.
    #[arg(long, default_value_t = 300)]
    pages: usize,
    /// Two-job workflows that are created and executed in a turn.
    #[arg(long, default_value_t = 20_000)]
    executed: usize,
    /// Parents of the join.
    #[arg(long, default_value_t = 10_000)]
    parents: usize,
    /// Turns of each figure; the tables show medians and ends.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Where the figures go as JSON.
    #[arg(long, default_value = "bench-results/workflow.json")]
    json: PathBuf,
}

/// Measures, prints the tables and writes the JSON.
pub(crate) async fn run(mut arguments: Arguments) -> anyhow::Result<()> {
    // Absolute, because the server runs in a folder of its own.
    arguments.server = server::find(&arguments.server)?;
    let creation = creation::measure(&arguments).await?;
    println!("{creation}");
    let execution = execution::measure(&arguments).await?;
    println!("{execution}");
    let listing = listing::measure(&arguments).await?;
    println!("{listing}");
    let recovery = recovery::measure(&arguments).await?;
    println!("{recovery}");
    let json = json!({
        "creation": creation.to_json(), "execution": execution.to_json(), "listing": listing.to_json(),
        "recovery": recovery.to_json(),
    });
    write_json(&arguments.json, &json)
}

/// The median of several turns with the least and the most; a dash where nothing was measured.
fn spread(values: &[f64], digits: usize) -> String {
    Spread::new(values.to_vec()).map_or_else(|| "-".to_owned(), |spread| format!("{spread:.digits$}"))
}

/// Percentiles of times, in milliseconds.
pub(crate) struct Times(Vec<f64>);

impl Times {
    pub(crate) fn new(mut milliseconds: Vec<f64>) -> Self {
        milliseconds.sort_by(f64::total_cmp);
        Self(milliseconds)
    }

    /// The time that a share of the measurements stays within; not a number without measurements.
    pub(crate) fn at(&self, share: f64) -> f64 {
        let place = (self.0.len() as f64 * share) as usize;
        self.0.get(place.min(self.0.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
    }
}
