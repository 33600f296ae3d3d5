//! `tidegate-bench compare`: what a decision costs, in memory and on Redis, beside the figures of others.
//!
//! h2load with ten connections of twenty streams is the load that the others were measured with. It sends one body, so one key is
//! hot; our own generator adds many keys. Variants take turns, round after round, so that whatever else the machine does
//! falls on all of them.

mod decisions;
mod h2load;
mod memory;
mod table;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use serde_json::json;

use crate::figures::{duration, write_json};
use crate::machine::{Store, Testbed, server};
pub(crate) use decisions::Traffic;
use decisions::Turn;

/// Arguments of the subcommand.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The server's program.
    #[arg(long, default_value = "target/release/tidegate")]
    server: PathBuf,
    /// Turns of each variant; the table shows medians.
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Length of a turn: 3s, 500ms.
    #[arg(long, default_value = "3s", value_parser = duration)]
    turn: Duration,
    /// Where the figures go as JSON.
    #[arg(long, default_value = "bench-results/compare.json")]
    json: PathBuf,
}

/// A kind of load on a kind of server, and what all its turns showed.
struct Row {
    store: Store,
    descriptors: u16,
    traffic: Traffic,
    turns: Vec<Turn>,
}

/// Measures, prints the tables and writes the JSON. Fails when a server does not answer every request with OK.
pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    // Absolute, because the server runs in a folder of its own.
    let program = server::find(&arguments.server)?;
    let rows = decisions(&arguments, &program).await?;
    print!("{}", table::decisions(&rows));
    let folder = tempfile::tempdir().context("could not make a temporary folder")?;
    let idle = memory::idle(&program, folder.path()).await?;
    println!("\n{idle}");
    let keys = memory::million_keys(&program, folder.path()).await?;
    println!("{keys}");

    let json = json!({ "decisions": table::to_json(&rows), "idle": idle.to_json(), "keys": keys.to_json() });
    write_json(&arguments.json, &json)
}

async fn decisions(arguments: &Arguments, program: &Path) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for descriptors in [1, 10] {
        for store in [Store::Embedded, Store::Redis] {
            for traffic in [Traffic::H2load, Traffic::OneKey, Traffic::Uniform, Traffic::Zipf] {
                rows.push(Row { store, descriptors, traffic, turns: Vec::new() });
            }
        }
    }
    for round in 1..=arguments.rounds {
        eprintln!("round {round} of {}", arguments.rounds);
        for row in &mut rows {
            let testbed = Testbed::start(program, row.store).await?;
            row.turns.push(row.traffic.turn(&testbed, row.descriptors, arguments.turn).await?);
        }
    }
    Ok(rows)
}
