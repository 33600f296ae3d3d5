//! `tidegate-bench reloads`: what callers feel while the configuration changes again and again, and whether memory grows.
//!
//! Callers ask at a fixed rate: first alone, then while a management server sends one version after the other.

mod management;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::Args;
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use crate::figures::{self, Sheet, Table, finish, micros};
use crate::load::{Distribution, Keys, Load, Measured, Shape};
use crate::machine::server::{self, Server};
pub(super) use management::Management;

/// Arguments of the subcommand.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The server's program.
    #[arg(long, default_value = "target/release/tidegate")]
    server: PathBuf,
    /// How often the configuration changes.
    #[arg(long, default_value_t = 10_000)]
    reloads: u64,
    /// How many of these changes there are in a second, at most.
    #[arg(long, default_value_t = 250.0)]
    reload_rate: f64,
    /// Decisions a second that callers ask for.
    #[arg(long, default_value_t = 2_000.0)]
    rate: f64,
    /// The folder that the figures go to as JSON.
    #[arg(long, default_value = "bench-results")]
    results: PathBuf,
}

/// Before each measurement.
const WARMUP: Duration = Duration::from_millis(300);
/// How long the last changes may take.
const END: Duration = Duration::from_secs(120);

/// What was measured.
#[derive(Serialize, Deserialize)]
pub(crate) struct Results {
    reloads: u64,
    seconds: f64,
    without: Phase,
    with: Phase,
}

/// Calls for some time: microseconds, calls, and bytes of the server at its end.
#[derive(Serialize, Deserialize)]
struct Phase {
    p50: f64,
    p99: f64,
    p999: f64,
    answered: u64,
    failed: u64,
    resident: u64,
}

/// Measures, prints the table and writes the JSON.
pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let program = server::find(&arguments.server)?;
    let folder = tempfile::tempdir().context("could not make a temporary folder")?;
    let management = Management::start(Duration::from_secs_f64(1.0 / arguments.reload_rate))?;
    let environment = [
        ("CONFIG_TYPE", "GRPC_XDS_SOTW".to_owned()),
        ("CONFIG_GRPC_XDS_SERVER_URL", management.address.to_string()),
        ("TIDEGATE_HTTP_ADDR", String::new()),
    ];
    let server = Server::start(&program, folder.path(), &environment).await?;
    let span = Duration::from_secs_f64(arguments.reloads as f64 / arguments.reload_rate);
    let without = phase(&server, arguments.rate, span).await?;
    let (first, started) = (management.acknowledged(), Instant::now());
    management.send(arguments.reloads);
    let mut with = phase(&server, arguments.rate, span).await?;
    while management.acknowledged() + management.refused() < first + arguments.reloads {
        ensure!(
            started.elapsed() < span + END,
            "{} reloads in {:?}",
            management.acknowledged(),
            started.elapsed()
        );
        sleep(Duration::from_millis(10)).await;
    }
    let seconds = started.elapsed().as_secs_f64();
    ensure!(
        management.refused() == 0,
        "{} versions were refused",
        management.refused()
    );
    with.resident = server.process().resident_bytes()?;
    let results = Results {
        reloads: management.acknowledged() - first,
        seconds,
        without,
        with,
    };
    finish(&results, &arguments.results)
}

async fn phase(server: &Server, rate: f64, duration: Duration) -> anyhow::Result<Phase> {
    let load = Load {
        address: server.grpc(),
        connections: 4,
        streams: 16,
        shape: Shape {
            domain: "bench".into(),
            key: "key".into(),
            descriptors: 1,
            hits: 0,
        },
        keys: Keys::new(Distribution::Uniform, 1_000, 0.0, 1),
        rate: Some(rate),
        requests: None,
        warmup: WARMUP,
        duration,
    };
    Phase::of(&load.run(None).await?, server)
}

impl Phase {
    fn of(measured: &Measured, server: &Server) -> anyhow::Result<Self> {
        let time = |percent| micros(measured.tally.percentile(percent));
        Ok(Self {
            p50: time(50.0),
            p99: time(99.0),
            p999: time(99.9),
            answered: measured.tally.decisions(),
            // A limit that is missing for a moment would let a call pass, and one that is wrong would refuse it.
            failed: measured.tally.failures() + measured.tally.over_limit,
            resident: server.process().resident_bytes()?,
        })
    }
}

impl figures::Results for Results {
    const NAME: &str = "reloads";

    fn tables(&self) -> Vec<Table> {
        let mut sheet = Sheet::new(&[
            "",
            "p50 us",
            "p99 us",
            "p99.9 us",
            "calls",
            "failed",
            "resident MiB",
        ]);
        let reloads = format!("{} reloads in {:.1} s", self.reloads, self.seconds);
        for (name, phase) in [("no reload", &self.without), (reloads.as_str(), &self.with)] {
            let mut row = vec![name.to_owned()];
            row.extend([phase.p50, phase.p99, phase.p999].map(|time| format!("{time:.0}")));
            row.extend([phase.answered.to_string(), phase.failed.to_string()]);
            row.push(format!("{:.1}", phase.resident as f64 / f64::from(1 << 20)));
            sheet.row(row);
        }
        vec![Table::new("reloads", sheet)]
    }
}
