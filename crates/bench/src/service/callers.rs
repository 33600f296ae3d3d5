//! `tidegate-bench callers`: how many calls of ten keys a fixed number of callers gets through.
//!
//! In a closed loop the rate and the mean time are one result, told twice; the 99th percentile is the other.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use serde_json::{Value, json};
use tidegate_pipeline::{Arg, Batch, Grouping};

use super::load::{self, Callers, Parallelism};
use crate::delay::Accuracy;
use crate::engine;
use crate::figures::Latency;
use crate::figures::Sheet;
use crate::figures::Turns;
use crate::figures::write_json;
use crate::machine::server::{self, Server};
use crate::machine::{Cores, Lab};

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

/// The reference with 64 callers behind the same proxies: its parallelism, calls a second, and the mean where it was given.
const REFERENCE: [(&str, f64, Option<f64>); 3] =
    [("serial", 1_600.0, None), ("parallelism 8", 3_300.0, None), ("parallelism 0", 3_600.0, Some(17.5))];

/// What carries a call.
enum Carrier {
    Service(Server),
    /// The engine alone, in the load's own process.
    Engine,
}

/// A way to carry calls, and what its turns showed for each number of callers.
struct Variant {
    carrier: Carrier,
    parallelism: Parallelism,
    cells: [Latency; 2],
}

/// Measures, prints the table and writes the JSON.
pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let program = server::find(&arguments.server)?;
    let folder = tempfile::tempdir().context("could not make a temporary folder")?;
    let accuracy = Accuracy::measure()?;
    let lab = Lab::start(PRIMARIES, Cores::Anywhere).await?;
    lab.proxy().set_delay(arguments.one_way);
    let mut variants = Vec::new();
    for parallelism in [Parallelism::Serial, Parallelism::Full] {
        let server = load::start(&program, folder.path(), &lab, parallelism).await?;
        variants.push(Variant::new(Carrier::Service(server), parallelism));
    }
    for parallelism in [Parallelism::Serial, Parallelism::Full] {
        variants.push(Variant::new(Carrier::Engine, parallelism));
    }
    for round in 1..=arguments.turns.rounds {
        eprintln!("round {round} of {}", arguments.turns.rounds);
        for (cell, connections) in CONNECTIONS.into_iter().enumerate() {
            for variant in &mut variants {
                variant.turn(cell, connections, &lab, &arguments.turns).await?;
            }
        }
    }
    lab.check()?;
    println!(
        "{accuracy}\n{PRIMARIES} primaries, {:?} each way, {KEYS} keys a call, callers that never pause.\n",
        arguments.one_way
    );
    println!("{}", sheet(&variants));
    let json =
        json!({ "proxy": accuracy.to_json(), "variants": variants.iter().map(Variant::to_json).collect::<Vec<_>>() });
    write_json(&arguments.turns.results.join("callers.json"), &json)
}

impl Variant {
    fn new(carrier: Carrier, parallelism: Parallelism) -> Self {
        Self { carrier, parallelism, cells: <[Latency; 2]>::default() }
    }

    fn name(&self) -> String {
        match (&self.carrier, self.parallelism) {
            (Carrier::Service(_), parallelism) => format!("service, {}", parallelism.name()),
            (Carrier::Engine, Parallelism::Serial) => "engine, serial by slot".to_owned(),
            (Carrier::Engine, Parallelism::Full) => "engine, parallel by node".to_owned(),
        }
    }

    async fn turn(&mut self, cell: usize, connections: u16, lab: &Lab, turns: &Turns) -> anyhow::Result<()> {
        let latency = &mut self.cells[cell];
        if let Carrier::Service(server) = &self.carrier {
            let callers = Callers { connections, streams: connections, rate: None, descriptors: KEYS };
            return load::turn(server, callers, turns, latency).await;
        }
        let mut config = lab.config();
        if self.parallelism == Parallelism::Serial {
            // The design of the proposal before it sent slots in parallel.
            (config.grouping, config.parallelism) = (Grouping::Slot, tidegate_pipeline::Parallelism::SERIAL);
        }
        let callers = usize::from(connections) * usize::from(connections);
        let load = engine::Load { config, callers, rate: None, warmup: turns.warmup(), duration: turns.turn };
        let measured = load.run(counters).await?;
        latency.add(&measured.tally, measured.elapsed, measured.behind)
    }

    fn to_json(&self) -> Value {
        let cells: Vec<Value> = CONNECTIONS
            .into_iter()
            .zip(&self.cells)
            .map(|(connections, latency)| json!({ "callers": connections * connections, "turns": latency.to_json() }))
            .collect();
        json!({ "variant": self.name(), "cells": cells })
    }
}

/// Ten counters anywhere in the cluster, with their expiry.
fn counters() -> Batch {
    let mut batch = Batch::with_capacity(usize::from(KEYS) * 2, usize::from(KEYS) * 128);
    for position in 0..KEYS {
        let key = format!("bench_key_{position}_{}", fastrand::u16(..1_000));
        let key = Arg::Key(key.as_bytes());
        batch.unit().command("INCRBY", &[key, Arg::Integer(1)]).repeatable("EXPIRE", &[key, Arg::Integer(3_600)]);
    }
    batch
}

fn sheet(variants: &[Variant]) -> Sheet {
    let mut sheet = Sheet::new(&["callers", "variant", "calls/s", "mean ms", "p99 ms"]);
    for (cell, connections) in CONNECTIONS.into_iter().enumerate() {
        for variant in variants {
            let latency = &variant.cells[cell];
            sheet.row(vec![
                (connections * connections).to_string(),
                variant.name(),
                format!("{:.0}", latency.per_second()),
                format!("{:.2}", latency.mean_ms()),
                format!("{:.2}", latency.p99_ms()),
            ]);
        }
    }
    for (name, rate, mean) in REFERENCE {
        let mean = mean.map_or("-".to_owned(), |mean| format!("{mean:.1}"));
        sheet.row(vec!["64".into(), format!("the reference, {name}"), format!("{rate:.0}"), mean, "-".into()]);
    }
    sheet
}
