//! `tidegate-bench compare`: what a decision costs, in memory and on Redis, beside the figures of others.
//!
//! The load is h2load with ten connections of twenty streams, as it was for the others. Variants take turns, round after
//! round, so that whatever else the machine does falls on all of them.

mod h2load;
mod memory;
mod table;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use serde_json::json;
use tidegate_pipeline::test_util::RedisServer;

use crate::figures::write_json;
use crate::load::Load;
use crate::load::{Bodies, Shape};
use crate::load::{Distribution, Keys};
use crate::machine::Address;
use crate::machine::server::{self, Server};
use crate::machine::{Cost, Process};
use h2load::H2load;

/// Arguments of the subcommand.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The server's program.
    #[arg(long, default_value = "target/release/tidegate")]
    server: PathBuf,
    /// Turns of each variant; the table shows medians.
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Length of a turn: 3s, 500ms.
    #[arg(long, default_value = "3s", value_parser = crate::figures::duration)]
    turn: Duration,
    /// Where the figures go as JSON.
    #[arg(long, default_value = "bench-results/compare.json")]
    json: PathBuf,
}

/// Where counters live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backend {
    Memory,
    Redis,
}

/// A server and a request.
struct Variant {
    server: Server,
    redis: Option<Process>,
    backend: Backend,
    descriptors: u16,
    h2load: H2load,
}

/// What one turn of a variant showed, each figure for one decision.
pub(crate) struct Turn {
    pub(crate) decisions_per_second: f64,
    pub(crate) decisions: u64,
    pub(crate) server: Cost,
    pub(crate) redis: Option<Cost>,
}

/// What all turns of a variant showed.
pub(crate) struct Row {
    pub(crate) backend: Backend,
    pub(crate) descriptors: u16,
    pub(crate) turns: Vec<Turn>,
}

/// Measures, prints the tables and writes the JSON. Fails when a server does not answer every request with OK.
pub(crate) async fn run(mut arguments: Arguments) -> anyhow::Result<()> {
    // Absolute, because the server runs in a folder of its own.
    arguments.server = server::find(&arguments.server)?;
    let redis = RedisServer::start().await;
    let folder = tempfile::tempdir().context("could not make a temporary folder")?;
    let rows = decisions(&arguments, &redis, folder.path()).await?;
    print!("{}", table::decisions(&rows));
    let idle = memory::idle(&arguments.server, folder.path()).await?;
    println!("\n{idle}");
    let keys = memory::million_keys(&arguments.server, folder.path()).await?;
    println!("{keys}");

    let json = json!({ "decisions": table::to_json(&rows), "idle": idle.to_json(), "keys": keys.to_json() });
    write_json(&arguments.json, &json)
}

async fn decisions(arguments: &Arguments, redis: &RedisServer, folder: &Path) -> anyhow::Result<Vec<Row>> {
    let mut variants = Vec::new();
    for descriptors in [1, 10] {
        for backend in [Backend::Memory, Backend::Redis] {
            variants.push(Variant::prepare(arguments, redis, folder, (backend, descriptors)).await?);
        }
    }
    let row = |variant: &Variant| Row { backend: variant.backend, descriptors: variant.descriptors, turns: Vec::new() };
    let mut rows: Vec<Row> = variants.iter().map(row).collect();
    for round in 1..=arguments.rounds {
        eprintln!("round {round} of {}", arguments.rounds);
        for (variant, row) in variants.iter().zip(&mut rows) {
            row.turns.push(variant.turn()?);
        }
    }
    Ok(rows)
}

impl Variant {
    /// Starts the server, sees that it answers, and finds out how many requests fill a turn.
    async fn prepare(
        arguments: &Arguments,
        redis: &RedisServer,
        folder: &Path,
        (backend, descriptors): (Backend, u16),
    ) -> anyhow::Result<Self> {
        let on_redis = matches!(backend, Backend::Redis);
        let environment = match backend {
            Backend::Memory => Vec::new(),
            Backend::Redis => vec![("REDIS_SOCKET_TYPE", "tcp".into()), ("REDIS_URL", redis.address().to_string())],
        };
        let server = Server::start(&arguments.server, folder, &environment).await?;
        let shape = Shape { domain: "bench".into(), key: "key".into(), descriptors, hits: 0 };
        see_that_it_answers(server.grpc(), shape.clone()).await?;
        let body = folder.join(format!("body-{descriptors}"));
        let mut keys = Keys::new(Distribution::Sequence, u32::from(descriptors), 0.0, 0);
        std::fs::write(&body, Bodies::new(&shape)?.next(&mut keys)).context("could not write the request body")?;
        let mut h2load = H2load { address: server.grpc(), body, requests: 20_000 };
        let trial = h2load.run()?;
        h2load.requests = (trial * arguments.turn.as_secs_f64()) as u64;
        let redis = on_redis.then(|| Process(redis.pid()));
        Ok(Self { server, redis, backend, descriptors, h2load })
    }

    fn turn(&self) -> anyhow::Result<Turn> {
        let (server, redis) = (self.server.process().cost()?, self.redis.map(Process::cost).transpose()?);
        let decisions_per_second = self.h2load.run()?;
        let server = self.server.process().cost()? - server;
        let redis = match (self.redis, redis) {
            (Some(process), Some(before)) => Some(process.cost()? - before),
            _ => None,
        };
        Ok(Turn { decisions_per_second, decisions: self.h2load.requests, server, redis })
    }
}

/// h2load counts HTTP statuses only, and gRPC errors have status 200.
async fn see_that_it_answers(address: Address, shape: Shape) -> anyhow::Result<()> {
    const REQUESTS: u64 = 100;
    let load = Load {
        address,
        connections: 1,
        streams: 1,
        shape,
        keys: Keys::new(Distribution::Sequence, 100, 0.0, 0),
        rate: None,
        requests: Some(REQUESTS),
        warmup: Duration::ZERO,
        duration: Duration::from_secs(10),
    };
    let tally = load.run(None).await?.tally;
    if tally.ok != REQUESTS {
        bail!("the server answered {} of {REQUESTS} requests with OK; errors: {:?}", tally.ok, tally.errors);
    }
    Ok(())
}
