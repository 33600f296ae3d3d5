//! What is measured, and how much of it.

use std::path::PathBuf;

use clap::Args;

use super::limits::scale::Scale;

/// Arguments of the subcommand.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The server's program.
    #[arg(long, default_value = "target/release/tidegate")]
    pub(super) server: PathBuf,
    /// Workflows that are listed, at most: 1,000, 10,000 and so on up to here.
    #[arg(long, default_value_t = 1_000_000)]
    pub(super) workflows: usize,
    /// Pages read at each size.
    #[arg(long, default_value_t = 300)]
    pub(super) pages: usize,
    /// Two-job workflows that are created and executed in a turn.
    #[arg(long, default_value_t = 20_000)]
    pub(super) executed: usize,
    /// Parents of the join.
    #[arg(long, default_value_t = 10_000)]
    pub(super) parents: usize,
    /// Measures only so many servers on one Redis, one number after the other, and prints the table.
    #[arg(long, value_delimiter = ',')]
    pub(super) servers: Vec<usize>,
    /// Measures only what readers of events cost others, and prints the table.
    #[arg(long)]
    pub(super) watchers: bool,
    /// Measures only the worker of the Python SDK beside others, and prints the table.
    #[arg(long)]
    pub(super) python: bool,
    /// Measures only what limits of jobs cost, and prints the table.
    #[arg(long)]
    pub(super) limits: bool,
    #[command(flatten)]
    pub(super) scale: Scale,
    /// Several servers are on a cluster of three primaries.
    #[arg(long)]
    pub(super) cluster: bool,
    /// Parents of the join of the large workflow.
    #[arg(long, default_value_t = 100_000)]
    pub(super) many_parents: usize,
    /// Names of queues and workflows, where there are many.
    #[arg(long, default_value_t = 100_000)]
    pub(super) names: usize,
    /// Turns of each figure; the tables show medians and ends.
    #[arg(long, default_value_t = 3)]
    pub(super) rounds: u32,
    /// The folder that scripts/deps puts peers into. What is not there is left out.
    #[arg(long, default_value = "tools/bench/peers")]
    pub(super) peers: PathBuf,
    /// The folder that the figures go to as JSON.
    #[arg(long, default_value = "bench-results")]
    pub(super) results: PathBuf,
}
