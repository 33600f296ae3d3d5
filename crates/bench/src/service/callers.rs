//! `tidegate-bench callers`: how many calls of ten keys a fixed number of callers gets through.
//!
//! In a closed loop the mean time follows from the rate; the 99th percentile does not.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use serde::{Deserialize, Serialize};
use tidegate_pipeline::{Arg, Batch};

use super::load::{self, Callers, Parallelism};
use crate::delay::Accuracy;
use crate::engine;
use crate::figures::{self, Latency, Sheet, Table, Turns, finish};
use crate::machine::server::{self, Server};
use crate::machine::{Cores, FarCluster};

/// Arguments of the subcommand.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    turns: Turns,
    /// The server's program.
    #[arg(long, default_value = "target/release/tidegate")]
    server: PathBuf,
    /// The delay of each direction.
    #[arg(long, default_value = "1ms", value_parser = crate::figures::duration)]
    one_way: Duration,
}

const PRIMARIES: usize = 3;
const KEYS: u16 = 10;
/// Connections with as many callers each.
const CONNECTIONS: [u16; 2] = [8, 10];

/// What was measured.
#[derive(Serialize, Deserialize)]
pub(crate) struct Results {
    proxy: Accuracy,
    cells: Vec<Cell>,
}

/// A number of callers on a variant.
#[derive(Serialize, Deserialize)]
struct Cell {
    callers: u16,
    variant: String,
    turns: Latency,
}

/// What sends a call to Redis.
enum Carrier {
    Service(Server),
    /// The engine alone, in the load's own process.
    Engine,
}

/// A way to send calls to Redis.
struct Variant {
    carrier: Carrier,
    parallelism: Parallelism,
}

/// Measures, prints the tables and writes the JSON.
pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let program = server::find(&arguments.server)?;
    let folder = tempfile::tempdir().context("could not make a temporary folder")?;
    let proxy = Accuracy::measure()?;
    let cluster = FarCluster::start(PRIMARIES, Cores::Anywhere).await?;
    cluster.proxy().set_delay(arguments.one_way);
    let variants = variants(&program, folder.path(), &cluster).await?;
    let mut cells = Vec::new();
    for connections in CONNECTIONS {
        let callers = connections * connections;
        cells.extend(variants.iter().map(|variant| Cell {
            callers,
            variant: variant.name(),
            turns: Latency::default(),
        }));
    }
    for round in 1..=arguments.turns.rounds {
        eprintln!("round {round} of {}", arguments.turns.rounds);
        let of_all = CONNECTIONS
            .into_iter()
            .flat_map(|connections| variants.iter().map(move |one| (connections, one)));
        for ((connections, variant), cell) in of_all.zip(&mut cells) {
            variant
                .turn(connections, &cluster, &arguments.turns, &mut cell.turns)
                .await?;
        }
    }
    cluster.check()?;
    finish(&Results { proxy, cells }, &arguments.turns.results)
}

async fn variants(
    program: &Path,
    folder: &Path,
    cluster: &FarCluster,
) -> anyhow::Result<Vec<Variant>> {
    let mut variants = Vec::new();
    for parallelism in [Parallelism::Serial, Parallelism::Full] {
        let server = load::start(program, folder, cluster, parallelism).await?;
        variants.push(Variant {
            carrier: Carrier::Service(server),
            parallelism,
        });
    }
    for parallelism in [Parallelism::Serial, Parallelism::Full] {
        variants.push(Variant {
            carrier: Carrier::Engine,
            parallelism,
        });
    }
    Ok(variants)
}

impl figures::Results for Results {
    const NAME: &str = "callers";

    fn tables(&self) -> Vec<Table> {
        let mut sheet = Sheet::new(&["callers", "variant", "calls/s", "mean ms", "p99 ms"]);
        for Cell {
            callers,
            variant,
            turns,
        } in &self.cells
        {
            sheet.row(vec![
                callers.to_string(),
                variant.clone(),
                format!("{:.0}", turns.per_second()),
                format!("{:.2}", turns.mean_ms()),
                format!("{:.2}", turns.p99_ms()),
            ]);
        }
        vec![Table::new("callers", sheet)]
    }
}

impl Variant {
    fn name(&self) -> String {
        match (&self.carrier, self.parallelism) {
            (Carrier::Service(_), parallelism) => format!("service, {}", parallelism.name()),
            (Carrier::Engine, Parallelism::Serial) => "engine, serial by slot".to_owned(),
            (Carrier::Engine, Parallelism::Full) => "engine, parallel by node".to_owned(),
        }
    }

    async fn turn(
        &self,
        connections: u16,
        cluster: &FarCluster,
        turns: &Turns,
        latency: &mut Latency,
    ) -> anyhow::Result<()> {
        if let Carrier::Service(server) = &self.carrier {
            let callers = Callers {
                connections,
                streams: connections,
                rate: None,
                descriptors: KEYS,
            };
            return load::turn(server, callers, turns, latency).await;
        }
        // Before the proposal, a call sent the commands of each slot when those of the one before it were answered.
        let keys_of_batch = match self.parallelism {
            Parallelism::Serial => 1,
            Parallelism::Full => KEYS,
        };
        let callers = usize::from(connections) * usize::from(connections);
        let load = engine::Load {
            config: cluster.config(),
            callers,
            rate: None,
            warmup: turns.warmup(),
            duration: turns.turn,
        };
        let measured = load.run(move || batches(keys_of_batch)).await?;
        latency.add(&measured.tally, measured.elapsed, measured.behind)
    }
}

/// Ten counters anywhere in the cluster, with their expiry.
fn batches(keys_of_batch: u16) -> Vec<Batch> {
    (0..KEYS)
        .step_by(usize::from(keys_of_batch))
        .map(|first| counters(first..first + keys_of_batch))
        .collect()
}

fn counters(positions: Range<u16>) -> Batch {
    let mut batch = Batch::with_capacity(positions.len() * 2, positions.len() * 128);
    for position in positions {
        let key = format!("bench_key_{position}_{}", fastrand::u16(..1_000));
        let key = Arg::Key(key.as_bytes());
        batch
            .unit()
            .command("INCRBY", &[key, Arg::Integer(1)])
            .repeatable("EXPIRE", &[key, Arg::Integer(3_600)]);
    }
    batch
}
