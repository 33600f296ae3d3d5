//! `tidegate-bench round-trips`: what a call of many descriptors takes when Redis is a millisecond away.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use serde::{Deserialize, Serialize};

use super::load::{self, Callers, Parallelism};
use crate::delay::Accuracy;
use crate::figures::{self, Latency, Sheet, Table, Turns, finish};
use crate::machine::server;
use crate::machine::{Cores, FarCluster};

/// Arguments of the subcommand.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    turns: Turns,
    /// The server's program.
    #[arg(long, default_value = "target/release/tidegate")]
    server: PathBuf,
    /// Calls a second.
    #[arg(long, default_value_t = 800.0)]
    rate: f64,
    /// The delay of each direction.
    #[arg(long, default_value = "1ms", value_parser = crate::figures::duration)]
    one_way: Duration,
}

const PRIMARIES: usize = 3;

const DESCRIPTORS: [u16; 5] = [1, 2, 5, 10, 100];

/// What was measured.
#[derive(Serialize, Deserialize)]
pub(crate) struct Results {
    proxy: Accuracy,
    rows: Vec<Row>,
}

/// Calls of so many descriptors, in both ways of sending groups.
#[derive(Serialize, Deserialize)]
struct Row {
    descriptors: u16,
    serial: Latency,
    parallel: Latency,
}

/// Measures, prints the tables and writes the JSON.
pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let program = server::find(&arguments.server)?;
    let folder = tempfile::tempdir().context("could not make a temporary folder")?;
    let proxy = Accuracy::measure()?;
    let cluster = FarCluster::start(PRIMARIES, Cores::Anywhere).await?;
    cluster.proxy().set_delay(arguments.one_way);
    let serial = load::start(&program, folder.path(), &cluster, Parallelism::Serial).await?;
    let parallel = load::start(&program, folder.path(), &cluster, Parallelism::Full).await?;
    let row = |descriptors| Row {
        descriptors,
        serial: Latency::default(),
        parallel: Latency::default(),
    };
    let mut rows: Vec<Row> = DESCRIPTORS.into_iter().map(row).collect();
    for round in 1..=arguments.turns.rounds {
        eprintln!("round {round} of {}", arguments.turns.rounds);
        for Row {
            descriptors,
            serial: serial_latency,
            parallel: parallel_latency,
        } in &mut rows
        {
            let callers = Callers {
                connections: 10,
                streams: 20,
                rate: Some(arguments.rate),
                descriptors: *descriptors,
            };
            load::turn(&serial, callers, &arguments.turns, serial_latency).await?;
            load::turn(&parallel, callers, &arguments.turns, parallel_latency).await?;
        }
    }
    cluster.check()?;
    finish(&Results { proxy, rows }, &arguments.turns.results)
}

impl Results {
    /// The row of the README: five descriptors.
    pub(crate) fn summary(&self) -> Vec<Vec<String>> {
        let five = self.rows.iter().filter(|row| row.descriptors == 5);
        let row = |row: &Row| {
            vec![
                "mean time of a call with five descriptors, cluster 1 ms away each way".to_owned(),
                format!("{:.1} ms", row.parallel.mean_ms().median),
                format!(
                    "{:.1} ms with one node after the other",
                    row.serial.mean_ms().median
                ),
            ]
        };
        five.map(row).collect()
    }
}

impl figures::Results for Results {
    const NAME: &str = "round-trips";

    fn tables(&self) -> Vec<Table> {
        vec![
            Table::new("proxy", self.proxy.sheet()),
            Table::new("round-trips", sheet(&self.rows)),
        ]
    }
}

fn sheet(rows: &[Row]) -> Sheet {
    let mut sheet = Sheet::new(&[
        "descriptors",
        "mean ms, serial",
        "parallel",
        "against 1",
        "p99 ms, serial",
        "parallel",
    ]);
    let one = rows[0].parallel.mean_ms().median;
    for Row {
        descriptors,
        serial,
        parallel,
    } in rows
    {
        sheet.row(vec![
            descriptors.to_string(),
            format!("{:.2}", serial.mean_ms()),
            format!("{:.2}", parallel.mean_ms()),
            format!("{:.2}", parallel.mean_ms().median / one),
            format!("{:.2}", serial.p99_ms()),
            format!("{:.2}", parallel.p99_ms()),
        ]);
    }
    sheet
}
