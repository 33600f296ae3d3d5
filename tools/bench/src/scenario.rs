//! Common parts of all comparisons: arguments, rounds, and the files of their tables.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;

use crate::figures::{Table, duration, write_tables};

/// A comparison. Its variants alternate, round after round, so that other load of the machine
/// affects all of them.
pub(crate) trait Scenario {
    /// Returns the name of the command, and of the file with the figures.
    fn name(&self) -> &'static str;

    async fn measure(&self, options: &RunOptions) -> Result<Vec<Table>>;
}

/// A comparison with its arguments.
#[derive(Args)]
pub(crate) struct Run<S: Args> {
    #[command(flatten)]
    options: RunOptions,
    #[command(flatten)]
    scenario: S,
}

/// Arguments that all comparisons have.
#[derive(Args)]
pub(crate) struct RunOptions {
    /// The server's program.
    #[arg(long, default_value = "target/release/tidegate")]
    server: PathBuf,
    /// The folder that scripts/deps puts peers into. What is not there is left out.
    #[arg(long, default_value = "tools/bench/peers")]
    pub(crate) peers: PathBuf,
    /// Turns of each variant; the tables show medians with the least and the most.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Length of a turn, where it has one: 2s, 500ms.
    #[arg(long, default_value = "2s", value_parser = duration)]
    pub(crate) turn: Duration,
    /// The folder that the figures go to as JSON.
    #[arg(long, default_value = "bench-results")]
    results: PathBuf,
}

impl RunOptions {
    /// Returns the absolute path of the server's program, because servers run in separate folders.
    pub(crate) fn program(&self) -> Result<PathBuf> {
        absolute(&self.server)
    }

    /// Returns the numbers of the rounds, and prints each to stderr.
    pub(crate) fn rounds(&self, what: &str) -> impl Iterator<Item = u32> {
        let rounds = self.rounds;
        (1..=rounds).inspect(move |round| eprintln!("{what}, round {round} of {rounds}"))
    }

    /// Returns the time before each turn that is not measured: connections open, counters fill.
    pub(crate) fn warmup(&self) -> Duration {
        (self.turn / 4).min(Duration::from_millis(500))
    }

    /// Returns the path of a file of a peer. Prints to stderr if it is missing.
    pub(crate) fn peer(&self, name: &str, file: &str) -> Option<PathBuf> {
        let found = self.peers.join(file).canonicalize().ok();
        if found.is_none() {
            eprintln!("{name} is not in {} and left out", self.peers.display());
        }
        found
    }
}

/// Returns the absolute path of a program of the server.
pub(crate) fn absolute(program: &std::path::Path) -> Result<PathBuf> {
    program.canonicalize().with_context(|| {
        let program = program.display();
        format!("there is no server at {program}; `make bench` builds it")
    })
}

/// Measures, prints the tables and writes them as JSON.
pub(crate) async fn run(run: Run<impl Scenario + Args>) -> Result<()> {
    let Run { options, scenario } = run;
    let tables = scenario.measure(&options).await?;
    for table in &tables {
        println!("{table}");
    }
    let file = options.results.join(scenario.name());
    write_tables(&file.with_extension("json"), &tables)
}
