//! The `tidegate-bench` binary: load generators and comparisons. The product needs none of them.
#![expect(clippy::print_stdout, reason = "reports go to stdout")]

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use compare::Compare;
use engine::{Connections, Pipelines, Pipelining};
use scenario::Run;
use service::{Callers, RoundTrips};
use workflow::Workflow;

mod ab;
mod compare;
mod delay;
mod engine;
mod figures;
mod load;
mod machine;
mod publish;
mod scenario;
mod service;
mod workflow;

/// Load tools for Tidegate and its peers.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Puts load on a rate limit server and says what it answered, how fast and at what cost.
    Ratelimit(Box<load::command::LoadArguments>),
    /// Measures what a decision costs, in memory and on Redis, with one key and with many.
    Compare(Run<Compare>),
    /// Measures calls through the whole service, a millisecond from Redis.
    RoundTrips(Run<RoundTrips>),
    /// Measures calls to several nodes: a round trip for each key against one for all nodes.
    Pipelines(Run<Pipelines>),
    /// Measures how much a fixed number of callers gets done, a millisecond from Redis.
    Callers(Run<Callers>),
    /// Measures how connections grow and shrink with load.
    Connections(Run<Connections>),
    /// Measures commands on one connection, beside redis-benchmark and a blocking client.
    Pipelining(Run<Pipelining>),
    /// Measures workflows over HTTP: lists, creation, execution, chains and joins.
    Workflow(Box<Run<Workflow>>),
    /// Runs all comparisons above and writes their figures into one file.
    All(publish::AllArguments),
    /// Shows the tables of such a run, or puts them into a document.
    Tables(publish::TablesArguments),
    /// Says whether one build of the server costs more than another.
    Ab(ab::AbArguments),
    /// Adds a fixed delay to each direction of connections to other servers.
    DelayProxy(delay::command::ProxyArguments),
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match Cli::parse().command.run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tidegate-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

impl Command {
    async fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Ratelimit(arguments) => load::command::run(*arguments).await,
            Self::Compare(arguments) => scenario::run(arguments).await,
            Self::RoundTrips(arguments) => scenario::run(arguments).await,
            Self::Pipelines(arguments) => scenario::run(arguments).await,
            Self::Callers(arguments) => scenario::run(arguments).await,
            Self::Connections(arguments) => scenario::run(arguments).await,
            Self::Pipelining(arguments) => scenario::run(arguments).await,
            Self::Workflow(arguments) => scenario::run(*arguments).await,
            Self::All(arguments) => publish::all(&arguments),
            Self::Tables(arguments) => publish::tables(&arguments),
            Self::Ab(arguments) => ab::run(arguments).await,
            Self::DelayProxy(arguments) => delay::command::run(arguments),
        }
    }
}
