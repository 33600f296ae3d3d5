//! `tidegate-bench pipelining`: what batches of commands cost, beside redis-benchmark and a blocking client.
//!
//! redis-benchmark is told how many commands to send at once. The engine is not: callers that know nothing of each other
//! share one connection, and commands gather by themselves. So each figure of ours stands beside redis-benchmark's at as many
//! commands for each write as ours came to.

mod curve;
mod engine;
mod peers;

use std::fmt;

use clap::Args;
use serde_json::{Value, json};
use tidegate_pipeline::test_util::RedisServer;

use crate::figures::Sheet;
use crate::figures::Spread;
use crate::figures::Turns;
use crate::figures::write_json;
use crate::machine::pin::{self, Core};
use curve::Curve;
use engine::EngineTurn;
use peers::RedisBenchmark;

/// Arguments of the subcommand.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    turns: Turns,
    /// Commands in one write of redis-benchmark, and callers of the engine.
    #[arg(long, value_delimiter = ',', default_value = "1,2,3,4,8,16,32,64")]
    depths: Vec<u32>,
}

/// The commands that redis-benchmark knows as `set` and `incr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Set,
    Incr,
}

/// A command at a depth, and what every turn showed.
struct Row {
    kind: Kind,
    depth: u32,
    benchmark: RedisBenchmark,
    /// Commands a second.
    theirs: Vec<f64>,
    ours: Vec<EngineTurn>,
}

/// Measures, prints the tables and writes the JSON.
pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let redis = RedisServer::start().await;
    pin::process(redis.pid(), Core::Servers)?;
    pin::current_thread(Core::Load)?;
    let turns = &arguments.turns;
    let mut rows = Vec::new();
    for kind in [Kind::Set, Kind::Incr] {
        for &depth in &arguments.depths {
            let benchmark = RedisBenchmark::prepare(redis.port(), kind, 1, depth, turns.turn)?;
            rows.push(Row { kind, depth, benchmark, theirs: Vec::new(), ours: Vec::new() });
        }
    }
    let many = RedisBenchmark::prepare(redis.port(), Kind::Incr, 50, 1, turns.turn)?;
    let (mut fifty, mut lone, mut blocking) = (Vec::new(), Vec::new(), Vec::new());
    for round in 1..=turns.rounds {
        eprintln!("round {round} of {}", turns.rounds);
        for row in &mut rows {
            row.theirs.push(row.benchmark.run()?);
            row.ours.push(engine::turn(&redis, row.kind, row.depth, turns).await?);
        }
        fifty.push(many.run()?);
        // Short turns in quick succession, because what is compared differs by a few hundredths.
        for _ in 0..4 {
            blocking.push(peers::blocking(redis.port(), turns.turn / 4)?);
            let turn = Turns { rounds: 1, turn: turns.turn / 4, results: turns.results.clone() };
            lone.push(engine::turn(&redis, Kind::Incr, 1, &turn).await?.per_second());
        }
    }
    let scale = Scale { fifty: Spread::new(fifty), lone: Spread::new(lone), blocking: Spread::new(blocking) };
    println!("One connection; Redis on one core, the client on the other. Commands a second are medians.\n");
    println!("{}\n{scale}", sheet(&rows));
    let json = json!({ "rows": rows.iter().map(Row::to_json).collect::<Vec<_>>(), "scale": scale.to_json() });
    write_json(&turns.results.join("pipelining.json"), &json)
}

fn sheet(rows: &[Row]) -> Sheet {
    let mut sheet = Sheet::new(&[
        "command",
        "P, callers",
        "redis-benchmark/s",
        "engine/s",
        "commands/write",
        "socket calls/command",
        "client CPU us/command",
        "Redis CPU us/command",
        "redis-benchmark/s there",
        "share",
    ]);
    for row in rows {
        let depth = median(&row.ours, EngineTurn::commands_per_write);
        let ours = median(&row.ours, EngineTurn::per_second);
        let theirs = Curve::of(rows.iter().filter(|other| other.kind == row.kind)).at(depth);
        sheet.row(vec![
            row.kind.name().to_uppercase(),
            row.depth.to_string(),
            format!("{:.0}", Spread::new(row.theirs.clone()).map_or(0.0, |spread| spread.median)),
            format!("{ours:.0}"),
            format!("{depth:.1}"),
            format!("{:.3}", median(&row.ours, EngineTurn::socket_calls_per_command)),
            format!("{:.2}", median(&row.ours, EngineTurn::client_us)),
            format!("{:.2}", median(&row.ours, EngineTurn::redis_us)),
            format!("{theirs:.0}"),
            format!("{:.0} %", 100.0 * ours / theirs),
        ]);
    }
    sheet
}

fn median(turns: &[EngineTurn], figure: impl Fn(&EngineTurn) -> f64) -> f64 {
    Spread::new(turns.iter().map(figure).collect()).map_or(0.0, |spread| spread.median)
}

/// What stands beside the table.
struct Scale {
    fifty: Option<Spread>,
    lone: Option<Spread>,
    blocking: Option<Spread>,
}

impl Scale {
    fn to_json(&self) -> Value {
        let json = |spread: Option<Spread>| spread.map(Spread::to_json);
        json!({
            "redis_benchmark_50_clients": json(self.fifty),
            "lone_caller": json(self.lone),
            "blocking_client": json(self.blocking),
        })
    }
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [Some(fifty), Some(lone), Some(blocking)] = [self.fifty, self.lone, self.blocking] else { return Ok(()) };
        writeln!(f, "redis-benchmark INCR with 50 connections at P = 1: {fifty:.0} a second.")?;
        write!(f, "INCR by a lone caller of the engine: {lone:.0} a second; by a blocking client: {blocking:.0}; ")?;
        writeln!(f, "share {:.1} %.", 100.0 * lone.median / blocking.median)
    }
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Set => "set",
            Self::Incr => "incr",
        }
    }
}

impl Row {
    fn to_json(&self) -> Value {
        let ours: Vec<Value> = self.ours.iter().map(EngineTurn::to_json).collect();
        json!({ "command": self.kind.name(), "depth": self.depth, "redis_benchmark": self.theirs, "engine": ours })
    }
}
