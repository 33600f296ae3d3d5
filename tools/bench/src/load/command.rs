//! `tidegate-bench ratelimit`: load for any server of Envoy's rate limit protocol.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::Args;
use tidegate_pipeline::Address;

use super::{Distribution, KeyStream, Load, Shape, report};
use crate::figures::duration;
use crate::machine::{Process, server_address};

/// Arguments of the subcommand.
#[derive(Args)]
pub(crate) struct LoadArguments {
    /// Where the server listens: host:port or unix:/path.
    #[arg(long, default_value = "127.0.0.1:8081", value_parser = server_address)]
    address: Address,
    /// Requests a second on a fixed schedule (open loop). Without it, each stream sends again as
    /// soon as it has its answer (closed loop).
    #[arg(long)]
    rate: Option<f64>,
    #[arg(long, default_value_t = 10)]
    connections: u16,
    /// Requests in flight on each connection, at most.
    #[arg(long, default_value_t = 20)]
    streams: u16,
    /// How keys are drawn.
    #[arg(long, value_enum, default_value_t = Distribution::Uniform)]
    distribution: Distribution,
    /// Distinct keys of each descriptor.
    #[arg(long, default_value_t = 1_000)]
    keys: u32,
    #[arg(long, default_value_t = 1.0)]
    zipf_exponent: f64,
    /// Two runs with one seed draw equal keys.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    shape: Shape,
    /// Stop after as many requests as this (closed loop only).
    #[arg(long, conflicts_with = "rate")]
    requests: Option<u64>,
    /// Measured time: 10s, 500ms.
    #[arg(long, default_value = "10s", value_parser = duration)]
    duration: Duration,
    /// Time before the measurement.
    #[arg(long, default_value = "1s", value_parser = duration)]
    warmup: Duration,
    /// The server's process; found from the listening port when left out.
    #[arg(long)]
    pid: Option<u32>,
    /// Write the figures to this file as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// Runs the load and prints its figures. Fails if no request was answered.
pub(crate) async fn run(arguments: LoadArguments) -> anyhow::Result<()> {
    let server = match arguments.pid {
        Some(pid) => Some(Process(pid)),
        None => Process::listening_on(&arguments.address).ok(),
    };
    let load = arguments.load()?;
    let measured = load.run(server).await?;
    let resident_bytes = server.map(Process::resident_bytes).transpose()?;
    let figures = report::to_json(&measured, resident_bytes);
    print!("{}", report::lines("", &figures));
    if server.is_none() {
        println!("The process of the server was not found; see --pid.");
    }
    if let Some(path) = arguments.json {
        let text = serde_json::to_string_pretty(&figures)? + "\n";
        std::fs::write(&path, text)
            .with_context(|| format!("could not write {}", path.display()))?;
    }
    let decisions = measured.calls.answers.decisions();
    ensure!(decisions > 0, "no request was answered with a decision");
    Ok(())
}

impl LoadArguments {
    /// Fails if the rate is not more than zero.
    fn load(&self) -> anyhow::Result<Load> {
        let is_valid = |rate: f64| rate.is_finite() && rate > 0.0;
        ensure!(
            self.rate.is_none_or(is_valid),
            "--rate must be more than zero"
        );
        let keys = KeyStream::new(self.distribution, self.keys, self.zipf_exponent, self.seed);
        Ok(Load {
            connections: self.connections,
            streams: self.streams,
            keys,
            rate: self.rate,
            requests: self.requests,
            warmup: self.warmup,
            ..Load::new(self.address.clone(), self.shape.clone(), self.duration)
        })
    }
}
