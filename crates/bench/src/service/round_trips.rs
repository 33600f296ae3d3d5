//! `tidegate-bench round-trips`: what a call of many descriptors takes when Redis is a millisecond away.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use serde_json::{Value, json};

use super::load::{self, Callers, Parallelism};
use crate::delay::Accuracy;
use crate::figures::Latency;
use crate::figures::Sheet;
use crate::figures::Turns;
use crate::figures::write_json;
use crate::machine::server;
use crate::machine::{Cores, Lab};

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

/// The reference's mean times in milliseconds: one group after the other, and all at once.
const REFERENCE: [(u16, Option<[f64; 2]>); 5] =
    [(1, Some([3.7, 3.7])), (2, Some([6.2, 3.9])), (5, Some([15.0, 4.4])), (10, Some([33.9, 5.3])), (100, None)];

/// Measures, prints the table and writes the JSON.
pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let program = server::find(&arguments.server)?;
    let folder = tempfile::tempdir().context("could not make a temporary folder")?;
    let accuracy = Accuracy::measure()?;
    let lab = Lab::start(PRIMARIES, Cores::Anywhere).await?;
    lab.proxy().set_delay(arguments.one_way);
    let serial = load::start(&program, folder.path(), &lab, Parallelism::Serial).await?;
    let parallel = load::start(&program, folder.path(), &lab, Parallelism::Full).await?;
    let mut rows = REFERENCE.map(|(descriptors, _)| (descriptors, [Latency::default(), Latency::default()]));
    for round in 1..=arguments.turns.rounds {
        eprintln!("round {round} of {}", arguments.turns.rounds);
        for (descriptors, latencies) in &mut rows {
            let callers =
                Callers { connections: 10, streams: 20, rate: Some(arguments.rate), descriptors: *descriptors };
            for (server, latency) in [&serial, &parallel].into_iter().zip(latencies) {
                load::turn(server, callers, &arguments.turns, latency).await?;
            }
        }
    }
    lab.check()?;
    println!(
        "{accuracy}\n{PRIMARIES} primaries, {:?} each way, {} calls a second through the whole service.\n",
        arguments.one_way, arguments.rate
    );
    println!("{}", sheet(&rows));
    println!(
        "The reference's means were taken at the same rate and delays; its round trip through the proxy was 2.4 ms."
    );
    let rows: Vec<Value> = rows
        .iter()
        .map(|(descriptors, [serial, parallel])| {
            json!({ "descriptors": descriptors, "serial": serial.to_json(), "parallel": parallel.to_json() })
        })
        .collect();
    let json = json!({ "proxy": accuracy.to_json(), "rate": arguments.rate, "rows": rows });
    write_json(&arguments.turns.results.join("round-trips.json"), &json)
}

fn sheet(rows: &[(u16, [Latency; 2])]) -> Sheet {
    let mut sheet = Sheet::new(&[
        "descriptors",
        "mean ms, serial",
        "parallel",
        "against 1",
        "p99 ms, serial",
        "parallel",
        "reference's mean ms, serial",
        "parallel",
    ]);
    let one = rows[0].1[1].mean_ms().median;
    for ((descriptors, [serial, parallel]), (_, reference)) in rows.iter().zip(REFERENCE) {
        let reference =
            reference.map_or(["-".to_owned(), "-".to_owned()], |means| means.map(|mean| format!("{mean:.1}")));
        let mut cells = vec![
            descriptors.to_string(),
            format!("{:.2}", serial.mean_ms()),
            format!("{:.2}", parallel.mean_ms()),
            format!("{:.2}", parallel.mean_ms().median / one),
            format!("{:.2}", serial.p99_ms()),
            format!("{:.2}", parallel.p99_ms()),
        ];
        cells.extend(reference);
        sheet.row(cells);
    }
    sheet
}
