//! `tidegate-bench pipelining`: what batches of commands cost, beside redis-benchmark and a blocking client.
//!
//! redis-benchmark is told how many commands to send at once. The engine is not: callers that know nothing of each other
//! share one connection, and commands gather by themselves. So each figure of ours stands beside redis-benchmark's at as many
//! commands for each write as the engine reached.

mod curve;
mod engine;
mod kind;
mod peers;

use clap::Args;
use serde::{Deserialize, Serialize};
use tidegate_pipeline::test_util::RedisServer;

use crate::figures::{self, Sheet, Spread, Table, Turns, finish, spread};
use crate::machine::pin::{self, Core};
use curve::Curve;
use engine::EngineTurn;
use kind::Kind;
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

/// What was measured.
#[derive(Serialize, Deserialize)]
pub(crate) struct Results {
    rows: Vec<Row>,
    single: Single,
}

/// A command at a depth, and what every turn showed.
#[derive(Serialize, Deserialize)]
struct Row {
    command: Kind,
    depth: u32,
    /// Commands a second.
    redis_benchmark: Vec<f64>,
    engine: Vec<EngineTurn>,
}

/// INCR without pipelining, in commands a second.
#[derive(Default, Serialize, Deserialize)]
struct Single {
    redis_benchmark_50_connections: Vec<f64>,
    engine_one_caller: Vec<f64>,
    blocking_client: Vec<f64>,
}

/// Measures, prints the tables and writes the JSON.
pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let redis = RedisServer::start().await;
    pin::process(redis.pid(), Core::Servers)?;
    pin::current_thread(Core::Load)?;
    let turns = &arguments.turns;
    let (mut rows, mut benchmarks) = (Vec::new(), Vec::new());
    for command in [Kind::Set, Kind::Incr] {
        for &depth in &arguments.depths {
            benchmarks.push(RedisBenchmark::prepare(
                redis.port(),
                command,
                1,
                depth,
                turns.turn,
            )?);
            rows.push(Row {
                command,
                depth,
                redis_benchmark: Vec::new(),
                engine: Vec::new(),
            });
        }
    }
    let many = RedisBenchmark::prepare(redis.port(), Kind::Incr, 50, 1, turns.turn)?;
    let mut single = Single::default();
    for round in 1..=turns.rounds {
        eprintln!("round {round} of {}", turns.rounds);
        for (row, benchmark) in rows.iter_mut().zip(&benchmarks) {
            row.redis_benchmark.push(benchmark.run()?);
            row.engine
                .push(engine::turn(&redis, row.command, row.depth, turns).await?);
        }
        single.redis_benchmark_50_connections.push(many.run()?);
        single.turn(&redis, turns).await?;
    }
    finish(&Results { rows, single }, &turns.results)
}

impl figures::Results for Results {
    const NAME: &str = "pipelining";

    fn tables(&self) -> Vec<Table> {
        vec![
            Table::new("pipelining", sheet(&self.rows)),
            Table::new("single", self.single.sheet()),
        ]
    }
}

impl Single {
    /// Short turns in quick succession, because what is compared differs by a few hundredths.
    async fn turn(&mut self, redis: &RedisServer, turns: &Turns) -> anyhow::Result<()> {
        let turn = Turns {
            rounds: 1,
            turn: turns.turn / 4,
            results: turns.results.clone(),
        };
        for _ in 0..4 {
            self.blocking_client
                .push(peers::blocking(redis.port(), turn.turn)?);
            self.engine_one_caller.push(
                engine::turn(redis, Kind::Incr, 1, &turn)
                    .await?
                    .commands_per_second,
            );
        }
        Ok(())
    }

    fn sheet(&self) -> Sheet {
        let mut sheet = Sheet::new(&["INCR, one command in each write", "commands/s"]);
        let rows = [
            (
                "redis-benchmark, 50 connections",
                &self.redis_benchmark_50_connections,
            ),
            ("a client that blocks for each reply", &self.blocking_client),
            ("one caller of the engine", &self.engine_one_caller),
        ];
        for (name, rates) in rows {
            sheet.row(vec![name.to_owned(), spread(rates.iter().copied(), 0)]);
        }
        sheet
    }
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
        let depth = row.median(|turn| turn.commands_per_write);
        let theirs = Curve::new(
            rows.iter()
                .filter(|other| other.command == row.command)
                .map(Row::point)
                .collect(),
        )
        .at(depth);
        sheet.row(vec![
            row.command.name().to_uppercase(),
            row.depth.to_string(),
            spread(row.redis_benchmark.iter().copied(), 0),
            spread(row.engine.iter().map(|turn| turn.commands_per_second), 0),
            format!("{depth:.1}"),
            format!("{:.3}", row.median(|turn| turn.socket_calls_per_command)),
            spread(row.engine.iter().map(|turn| turn.client_us_per_command), 2),
            spread(row.engine.iter().map(|turn| turn.redis_us_per_command), 2),
            format!("{theirs:.0}"),
            format!(
                "{:.0} %",
                100.0 * row.median(|turn| turn.commands_per_second) / theirs
            ),
        ]);
    }
    sheet
}

impl Row {
    /// The depth and redis-benchmark's commands a second there.
    fn point(&self) -> (f64, f64) {
        let rates = Spread::new(self.redis_benchmark.clone());
        (
            f64::from(self.depth),
            rates.map_or(f64::NAN, |rates| rates.median),
        )
    }

    fn median(&self, figure: impl Fn(&EngineTurn) -> f64) -> f64 {
        Spread::new(self.engine.iter().map(figure).collect())
            .map_or(f64::NAN, |spread| spread.median)
    }
}
