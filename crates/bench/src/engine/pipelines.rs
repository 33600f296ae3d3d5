//! `tidegate-bench pipelines`: one group for each key, one after the other, against one for each node, all at once.
//!
//! The first is what the older design does: a round trip for each key of a call. The table is the one that its bounded parallel
//! pipelines were judged by, with the same two numbers, and the curve shows from which distance on it matters.

use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use tidegate_pipeline::{Arg, Batch, Config, Grouping, Parallelism};

use crate::delay::Accuracy;
use crate::engine::load::{Load, Measured};
use crate::figures::Latency;
use crate::figures::Sheet;
use crate::figures::Turns;
use crate::figures::write_json;
use crate::machine::{Cores, Lab};

/// Arguments of the subcommand.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    turns: Turns,
    /// The delay of each direction where the round trip is to dominate.
    #[arg(long, default_value = "10ms", value_parser = crate::figures::duration)]
    one_way: Duration,
    /// Calls a second in the cells with a schedule.
    #[arg(long, default_value_t = 200.0)]
    rate: f64,
    /// Callers of the saturated cell.
    #[arg(long, default_value_t = 256)]
    callers: usize,
}

/// One for each key of the largest call: then each key has an owner of its own, and the ideal gain is their number.
const PRIMARIES: usize = 5;
const KEYS: [usize; 3] = [1, 2, 5];
/// Delays of the curve, in milliseconds each way; with the one that the first cells are measured at.
const CURVE: [u64; 3] = [0, 1, 5];

/// How a batch is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Design {
    SerialByKey,
    ParallelByNode,
}

/// Both designs under the same load.
struct Cell {
    keys: usize,
    /// `None` is without proxies, as fast as the machine can.
    one_way: Option<Duration>,
    serial: Latency,
    parallel: Latency,
    /// Share of a core that the nodes took, and commands for each write: medians say little of these, so the last turn.
    redis_share: [f64; 2],
    commands_per_write: [f64; 2],
}

/// Measures, prints the tables and writes the JSON.
pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let accuracy = Accuracy::measure()?;
    println!(
        "{accuracy}\n{PRIMARIES} primaries on one core, the load on the other; each key has an owner of its own.\n"
    );
    let lab = Lab::start(PRIMARIES, Cores::Apart).await?;
    let mut cells: Vec<Cell> = KEYS.iter().map(|&keys| Cell::new(keys, Some(arguments.one_way))).collect();
    cells.extend(CURVE.map(|millis| Cell::new(PRIMARIES, Some(Duration::from_millis(millis)))));
    let mut saturated = vec![Cell::new(PRIMARIES, None)];
    measure(&mut cells, &lab, &arguments).await?;
    lab.check()?;
    lab.bypass_proxies().await?;
    measure(&mut saturated, &lab, &arguments).await?;

    println!("{}", sheet(&cells));
    println!("Saturated: no delay, {} callers that never pause.\n\n{}", arguments.callers, sheet(&saturated));
    println!(
        "The figures that PR 1149 gives for the older design: p99 at N = 1 9.65 -> 9.72 ms, at N = 2 327 -> 135 ms,"
    );
    println!("at N = 5 99 -> 23 ms (4.3 times).");
    let cells: Vec<Value> = cells.iter().chain(&saturated).map(Cell::to_json).collect();
    let json = json!({ "proxy": accuracy.to_json(), "primaries": PRIMARIES, "rate": arguments.rate, "cells": cells });
    write_json(&arguments.turns.results.join("pipelines.json"), &json)
}

async fn measure(cells: &mut [Cell], lab: &Lab, arguments: &Arguments) -> anyhow::Result<()> {
    for round in 1..=arguments.turns.rounds {
        eprintln!("round {round} of {}", arguments.turns.rounds);
        for cell in &mut *cells {
            for design in [Design::SerialByKey, Design::ParallelByNode] {
                cell.turn(design, lab, arguments).await?;
            }
        }
    }
    Ok(())
}

impl Cell {
    fn new(keys: usize, one_way: Option<Duration>) -> Self {
        let (serial, parallel) = (Latency::default(), Latency::default());
        Self { keys, one_way, serial, parallel, redis_share: [0.0; 2], commands_per_write: [0.0; 2] }
    }

    async fn turn(&mut self, design: Design, lab: &Lab, arguments: &Arguments) -> anyhow::Result<()> {
        lab.proxy().set_delay(self.one_way.unwrap_or_default());
        let saturated = self.one_way.is_none();
        let load = Load {
            config: design.config(lab.config()),
            callers: if saturated { arguments.callers } else { 1_024 },
            rate: (!saturated).then_some(arguments.rate),
            warmup: arguments.turns.warmup(),
            duration: arguments.turns.turn,
        };
        let tags: Vec<String> = lab.tags()[..self.keys].to_vec();
        let busy = lab.redis_time()?;
        let time = load.warmup + load.duration;
        let measured = load.run(move || counters(&tags)).await?;
        self.redis_share[design as usize] = (lab.redis_time()? - busy).as_secs_f64() / time.as_secs_f64();
        self.commands_per_write[design as usize] = measured.commands_per_write();
        let Measured { tally, elapsed, behind, .. } = measured;
        let latency = match design {
            Design::SerialByKey => &mut self.serial,
            Design::ParallelByNode => &mut self.parallel,
        };
        latency.add(&tally, elapsed, behind)
    }

    fn to_json(&self) -> Value {
        json!({
            "keys": self.keys,
            "one_way_ms": self.one_way.map(|time| time.as_secs_f64() * 1_000.0),
            "serial_by_key": self.serial.to_json(),
            "parallel_by_node": self.parallel.to_json(),
            "redis_core_share": self.redis_share,
            "commands_per_write": self.commands_per_write,
        })
    }
}

impl Design {
    fn config(self, mut config: Config) -> Config {
        (config.grouping, config.parallelism) = match self {
            Self::SerialByKey => (Grouping::Key, Parallelism::SERIAL),
            Self::ParallelByNode => (Grouping::Node, Parallelism::UNBOUNDED),
        };
        config
    }
}

/// A counter for each tag, with its expiry, as a rate limiter counts.
fn counters(tags: &[String]) -> Batch {
    let mut batch = Batch::with_capacity(tags.len() * 2, tags.len() * 128);
    for tag in tags {
        let key = format!("{tag}{}", fastrand::u16(..1_000));
        let key = Arg::Key(key.as_bytes());
        batch.unit().command("INCRBY", &[key, Arg::Integer(1)]).repeatable("EXPIRE", &[key, Arg::Integer(60)]);
    }
    batch
}

fn sheet(cells: &[Cell]) -> Sheet {
    let mut sheet = Sheet::new(&[
        "keys",
        "one way",
        "calls/s, serial by key",
        "by node",
        "mean ms, serial by key",
        "by node",
        "times",
        "p99 ms, serial by key",
        "by node",
        "times",
        "Redis core %",
        "commands/write",
    ]);
    for cell in cells {
        let (serial, parallel) = (&cell.serial, &cell.parallel);
        let times = |serial: f64, parallel: f64| format!("{:.2}", serial / parallel);
        sheet.row(vec![
            cell.keys.to_string(),
            cell.one_way.map_or("-".into(), |time| format!("{time:?}")),
            format!("{:.0}", serial.per_second().median),
            format!("{:.0}", parallel.per_second().median),
            format!("{:.2}", serial.mean_ms()),
            format!("{:.2}", parallel.mean_ms()),
            times(serial.mean_ms().median, parallel.mean_ms().median),
            format!("{:.2}", serial.p99_ms()),
            format!("{:.2}", parallel.p99_ms()),
            times(serial.p99_ms().median, parallel.p99_ms().median),
            cell.redis_share.map(|share| format!("{:.0}", share * 100.0)).join(", "),
            cell.commands_per_write.map(|commands| format!("{commands:.1}")).join(", "),
        ]);
    }
    sheet
}
