//! The `tidegate-bench` binary: load tools and comparisons, none of which the product needs.
#![expect(clippy::print_stdout, reason = "reports go to stdout")]

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Parser, Subcommand};

mod address;
mod body;
mod callers;
mod compare;
mod connection;
mod connections;
mod delay;
mod delay_proxy;
mod engine;
mod keys;
mod lab;
mod latency;
mod layout;
mod load;
mod pace;
mod pin;
mod pipelines;
mod pipelining;
mod process;
mod ratelimit;
mod report;
mod round_trips;
mod server;
mod service;
mod sheet;
mod spread;
mod tally;
mod turns;
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
    Ratelimit(Box<ratelimit::Arguments>),
    /// Measures this server in memory and on Redis, beside the figures of others.
    Compare(compare::Arguments),
    /// Measures commands on one connection, beside redis-benchmark and a blocking client.
    Pipelining(pipelining::Arguments),
    /// Measures calls to several nodes: a round trip for each key against one for all nodes.
    Pipelines(pipelines::Arguments),
    /// Measures calls through the whole service, a millisecond from Redis.
    RoundTrips(round_trips::Arguments),
    /// Measures how much a fixed number of callers gets done, a millisecond from Redis.
    Callers(callers::Arguments),
    /// Measures how connections grow and shrink with load.
    Connections(connections::Arguments),
    /// Measures workflows over HTTP: lists, creation, execution, chains and joins.
    Workflow(workflow::Arguments),
    /// Measures how long graphs take to be laid out and drawn, and how many lines cross.
    Layout(layout::Arguments),
    /// Adds a fixed delay to each direction of connections to other servers.
    DelayProxy(delay_proxy::Arguments),
    /// Writes one request body to stdout, framed for gRPC, for tools that post a file.
    Body(ratelimit::ShapeArguments),
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run(Cli::parse().command).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tidegate-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Ratelimit(arguments) => ratelimit::run(*arguments).await,
        Command::Compare(arguments) => compare::run(arguments).await,
        Command::Pipelining(arguments) => pipelining::run(arguments).await,
        Command::Pipelines(arguments) => pipelines::run(arguments).await,
        Command::RoundTrips(arguments) => round_trips::run(arguments).await,
        Command::Callers(arguments) => callers::run(arguments).await,
        Command::Connections(arguments) => connections::run(arguments).await,
        Command::Workflow(arguments) => workflow::run(arguments).await,
        Command::Layout(arguments) => layout::run(&arguments),
        Command::DelayProxy(arguments) => delay_proxy::run(arguments),
        Command::Body(shape) => {
            let mut keys = keys::Keys::new(keys::Distribution::Sequence, 1, 0.0, 0);
            let body = body::Bodies::new(&shape.shape())?.next(&mut keys);
            std::io::stdout().write_all(&body).context("could not write the body")
        }
    }
}
