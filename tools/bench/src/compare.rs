//! `tidegate-bench compare`: what a decision costs, in memory and on Redis.
//!
//! h2load sends one body again and again, so each of its descriptors is one hot key; our own generator adds loads with many
//! keys. Variants take turns, round after round, so that whatever else the machine does falls on all of them.

mod decisions;
mod h2load;
mod memory;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use serde::{Deserialize, Serialize};

use crate::figures::{self, Sheet, Spread, Table, duration, finish, spread};
use crate::machine::{Store, Testbed, server};
pub(crate) use decisions::{KEYS, Traffic, Turn, fixed};
pub(crate) use h2load::Scheme;
use memory::{Idle, MillionKeys};

/// Arguments of the subcommand.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The server's program.
    #[arg(long, default_value = "target/release/tidegate")]
    server: PathBuf,
    /// The folder that scripts/deps puts peers into. What is not there is left out.
    #[arg(long, default_value = "tools/bench/peers")]
    peers: PathBuf,
    /// Turns of each variant; the table shows medians with the least and the most.
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Length of a turn: 3s, 500ms.
    #[arg(long, default_value = "3s", value_parser = duration)]
    turn: Duration,
    /// Keys of the loads that have many, over all descriptors of a request.
    #[arg(long, default_value_t = decisions::KEYS)]
    keys: u32,
    /// How long an idle server is watched.
    #[arg(long, default_value = "10s", value_parser = duration)]
    idle: Duration,
    /// When to look at the memory after a million keys, in seconds after the last request.
    #[arg(long, value_delimiter = ',', default_values_t = [2, 5, 10, 30])]
    looks: Vec<u64>,
    /// The folder that the figures go to as JSON.
    #[arg(long, default_value = "bench-results")]
    results: PathBuf,
}

/// What was measured.
#[derive(Serialize, Deserialize)]
pub(crate) struct Results {
    decisions: Vec<Row>,
    idle: Idle,
    million_keys: MillionKeys,
}

/// A kind of load on a kind of server, and what all its turns showed.
#[derive(Serialize, Deserialize)]
struct Row {
    program: Program,
    store: Store,
    traffic: Traffic,
    descriptors: u16,
    turns: Vec<Turn>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Program {
    Tidegate,
    /// envoyproxy/ratelimit.
    Reference,
}

/// Measures, prints the tables and writes the JSON. Fails when a server does not answer every request with OK.
pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    // Absolute, because the server runs in a folder of its own.
    let program = server::find(&arguments.server)?;
    let decisions = decisions(&arguments, &program).await?;
    let folder = tempfile::tempdir().context("could not make a temporary folder")?;
    let idle = Idle::measure(&program, folder.path(), arguments.idle).await?;
    let million_keys = MillionKeys::measure(&program, folder.path(), &arguments.looks).await?;
    finish(
        &Results {
            decisions,
            idle,
            million_keys,
        },
        &arguments.results,
    )
}

async fn decisions(arguments: &Arguments, program: &Path) -> anyhow::Result<Vec<Row>> {
    let reference = arguments.peers.join("ratelimit").canonicalize().ok();
    if reference.is_none() {
        eprintln!(
            "envoyproxy/ratelimit is not in {} and left out",
            arguments.peers.display()
        );
    }
    let mut rows = rows(reference.is_some());
    for round in 1..=arguments.rounds {
        eprintln!("round {round} of {}", arguments.rounds);
        for row in &mut rows {
            let program = match (row.program, &reference) {
                (Program::Reference, Some(reference)) => reference,
                _ => program,
            };
            let testbed = Testbed::start(program, row.store).await?;
            let turn = row
                .traffic
                .turn(&testbed, row.descriptors, arguments.keys, arguments.turn);
            row.turns.push(turn.await?);
        }
    }
    Ok(rows)
}

/// All variants, without turns.
fn rows(with_reference: bool) -> Vec<Row> {
    let mut rows = Vec::new();
    for descriptors in [1, 10] {
        let mut row = |program, store, traffic| {
            rows.push(Row {
                program,
                store,
                traffic,
                descriptors,
                turns: Vec::new(),
            });
        };
        for store in [Store::Embedded, Store::Redis] {
            for traffic in [
                Traffic::H2load,
                Traffic::OneKey,
                Traffic::Uniform,
                Traffic::Zipf,
            ] {
                row(Program::Tidegate, store, traffic);
            }
        }
        row(Program::Tidegate, Store::Memcached, Traffic::H2load);
        if with_reference {
            row(Program::Reference, Store::Redis, Traffic::H2load);
            row(Program::Reference, Store::Memcached, Traffic::H2load);
        }
    }
    rows
}

impl Results {
    /// The rows of the README: what a decision costs, here and in envoyproxy/ratelimit.
    pub(crate) fn summary(&self) -> Vec<Vec<String>> {
        let ours = |store, descriptors| self.server_us(Program::Tidegate, store, descriptors);
        let row = |what: &str, store, descriptors, other| {
            vec![
                format!("processor time for a decision on {what}"),
                ours(store, descriptors),
                other,
            ]
        };
        let other = |descriptors| {
            format!(
                "envoyproxy/ratelimit: {}",
                self.server_us(Program::Reference, Store::Redis, descriptors)
            )
        };
        vec![
            row("one descriptor, Redis", Store::Redis, 1, other(1)),
            row("ten descriptors, Redis", Store::Redis, 10, other(10)),
            row("one descriptor, memory", Store::Embedded, 1, "-".to_owned()),
        ]
    }

    /// The median under h2load.
    fn server_us(&self, program: Program, store: Store, descriptors: u16) -> String {
        let wanted = |row: &&Row| {
            (row.program, row.store, row.traffic, row.descriptors)
                == (program, store, Traffic::H2load, descriptors)
        };
        let turns = self
            .decisions
            .iter()
            .find(wanted)
            .into_iter()
            .flat_map(|row| &row.turns);
        let spread = Spread::new(turns.map(|turn| turn.server_us).collect());
        spread.map_or_else(
            || "not measured".to_owned(),
            |spread| format!("{:.1} us", spread.median),
        )
    }
}

impl figures::Results for Results {
    const NAME: &str = "compare";

    fn tables(&self) -> Vec<Table> {
        vec![
            Table::new("decisions", sheet(&self.decisions)),
            Table::new("idle", self.idle.sheet()),
            Table::new("million-keys", self.million_keys.sheet()),
        ]
    }
}

fn sheet(rows: &[Row]) -> Sheet {
    let heads = [
        "server",
        "load",
        "descriptors",
        "decisions/s",
        "CPU us/decision",
        "user",
        "system",
        "Redis us/decision",
    ];
    let mut sheet = Sheet::new(&heads);
    for row in rows {
        let median = |figure: fn(&Turn) -> f64| {
            let spread = Spread::new(row.turns.iter().map(figure).collect());
            spread.map_or_else(|| "-".to_owned(), |spread| format!("{:.1}", spread.median))
        };
        sheet.row(vec![
            row.name().to_owned(),
            row.traffic.name().to_owned(),
            row.descriptors.to_string(),
            spread(row.turns.iter().map(|turn| turn.per_second), 0),
            spread(row.turns.iter().map(|turn| turn.server_us), 1),
            median(|turn| turn.server_user_us),
            median(|turn| turn.server_system_us),
            spread(row.turns.iter().filter_map(|turn| turn.redis_us), 1),
        ]);
    }
    sheet
}

impl Row {
    fn name(&self) -> &'static str {
        match (self.program, self.store) {
            (Program::Tidegate, Store::Embedded) => "Tidegate, memory",
            (Program::Tidegate, Store::Memcached) => "Tidegate, memcached",
            (Program::Tidegate, _) => "Tidegate, Redis",
            (Program::Reference, Store::Memcached) => "envoyproxy/ratelimit, memcached",
            (Program::Reference, _) => "envoyproxy/ratelimit, Redis",
        }
    }
}
