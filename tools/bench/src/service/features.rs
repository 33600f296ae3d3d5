//! `tidegate-bench features`: what a decision costs more when a feature of the limiter is on.
//!
//! h2load asks servers that count in memory, one feature each. They take turns, round after round, so that whatever else the machine does falls on all of
//! them; a round compares each with the server of the same round on which all is off.

mod peers;

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use serde::{Deserialize, Serialize};

use crate::compare::{Scheme, Turn, fixed};
use crate::figures::{self, Sheet, Table, Turns, finish, spread};
use crate::machine::{Store, Testbed, server};
use peers::Peers;

/// Arguments of the subcommand.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    turns: Turns,
    /// The server's program.
    #[arg(long, default_value = "target/release/tidegate")]
    server: PathBuf,
}

/// What was measured.
#[derive(Serialize, Deserialize)]
pub(crate) struct Results {
    rows: Vec<Row>,
}

#[derive(Serialize, Deserialize)]
struct Row {
    feature: Feature,
    turns: Vec<Turn>,
}

/// What is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Feature {
    Nothing,
    Tls,
    Statsd,
    DogStatsd,
    Prometheus,
    TracesOfFew,
    TracesOfAll,
    Xds,
}

const FEATURES: [Feature; 8] = [
    Feature::Nothing,
    Feature::Tls,
    Feature::Statsd,
    Feature::DogStatsd,
    Feature::Prometheus,
    Feature::TracesOfFew,
    Feature::TracesOfAll,
    Feature::Xds,
];

/// Measures, prints the table and writes the JSON. Fails when a server does not answer every request with OK.
pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let program = server::find(&arguments.server)?;
    let folder = tempfile::tempdir().context("could not make a temporary folder")?;
    let peers = Peers::start(folder.path())?;
    let mut rows: Vec<Row> = FEATURES
        .into_iter()
        .map(|feature| Row {
            feature,
            turns: Vec::new(),
        })
        .collect();
    for round in 1..=arguments.turns.rounds {
        eprintln!("round {round} of {}", arguments.turns.rounds);
        for row in &mut rows {
            let turn = row.feature.turn(&program, &peers, &arguments.turns).await;
            row.turns
                .push(turn.with_context(|| format!("with {}", row.feature.name()))?);
        }
    }
    finish(&Results { rows }, &arguments.turns.results)
}

impl Feature {
    fn name(self) -> &'static str {
        match self {
            Self::Nothing => "all off",
            Self::Tls => "TLS",
            Self::Statsd => "statsd over UDP",
            Self::DogStatsd => "DogStatsD over UDP, one rule",
            Self::Prometheus => "Prometheus with a mapping file",
            Self::TracesOfFew => "traces of 1 % of calls",
            Self::TracesOfAll => "traces of all calls",
            Self::Xds => "limits over xDS",
        }
    }

    fn settings(self, peers: &Peers) -> Vec<(&'static str, String)> {
        let statistics = |sink| {
            [
                ("DISABLE_STATS", "false".to_owned()),
                (sink, "true".to_owned()),
            ]
        };
        match self {
            Self::Nothing => Vec::new(),
            Self::Tls => peers.tls(),
            Self::Statsd => [&statistics("USE_STATSD")[..], &peers.statsd()].concat(),
            Self::DogStatsd => [
                &statistics("USE_DOG_STATSD")[..],
                &peers.statsd(),
                &peers.rule(),
            ]
            .concat(),
            Self::Prometheus => [&statistics("USE_PROMETHEUS")[..], &peers.mapping()].concat(),
            Self::TracesOfFew => peers.traces("0.01"),
            Self::TracesOfAll => peers.traces("1"),
            Self::Xds => peers.xds(),
        }
    }

    async fn turn(self, program: &Path, peers: &Peers, turns: &Turns) -> anyhow::Result<Turn> {
        let testbed = Testbed::start_with(program, Store::Embedded, &self.settings(peers)).await?;
        let scheme = if self == Self::Tls {
            Scheme::Https
        } else {
            Scheme::Http
        };
        fixed(&testbed, scheme, turns.turn).await
    }
}

impl figures::Results for Results {
    const NAME: &str = "features";

    fn tables(&self) -> Vec<Table> {
        let mut sheet = Sheet::new(&["on", "CPU us/decision", "beside all off", "decisions/s"]);
        let off: Vec<f64> = self
            .rows
            .first()
            .into_iter()
            .flat_map(|row| row.turns.iter())
            .map(|turn| turn.server_us)
            .collect();
        for row in &self.rows {
            let beside = row
                .turns
                .iter()
                .zip(&off)
                .map(|(turn, off)| turn.server_us / off);
            sheet.row(vec![
                row.feature.name().to_owned(),
                spread(row.turns.iter().map(|turn| turn.server_us), 1),
                spread(beside, 2),
                spread(row.turns.iter().map(|turn| turn.per_second), 0),
            ]);
        }
        vec![Table::new("features", sheet)]
    }
}
