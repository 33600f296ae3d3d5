//! The `tidegate-bench` binary: load generators and comparisons. The product needs none of them.
#![expect(clippy::print_stdout, reason = "reports go to stdout")]

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Parser, Subcommand};

mod ab;
mod compare;
mod delay;
mod engine;
mod figures;
mod hostile;
mod load;
mod machine;
mod publish;
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
    Ratelimit(Box<load::command::Arguments>),
    /// Measures what a decision costs, in memory and on Redis, with one key and with many.
    Compare(compare::Arguments),
    /// Measures commands on one connection, beside redis-benchmark and a blocking client.
    Pipelining(engine::pipelining::Arguments),
    /// Measures calls to several nodes: a round trip for each key against one for all nodes.
    Pipelines(engine::pipelines::Arguments),
    /// Measures calls through the whole service, a millisecond from Redis.
    RoundTrips(service::round_trips::Arguments),
    /// Measures how much a fixed number of callers gets done, a millisecond from Redis.
    Callers(service::callers::Arguments),
    /// Measures how connections grow and shrink with load.
    Connections(engine::connections::Arguments),
    /// Measures workflows over HTTP: lists, creation, execution, chains and joins.
    Workflow(workflow::Arguments),
    /// Measures how long graphs take to be laid out and drawn, and how many lines cross.
    Layout(workflow::layout::Arguments),
    /// Runs all comparisons above and writes their figures into one file.
    All(publish::AllArguments),
    /// Shows the tables of such a run, or puts them into a document.
    Tables(publish::TablesArguments),
    /// Attacks a server beside healthy callers, and says what they felt.
    Hostile(hostile::Arguments),
    /// Changes the configuration 10,000 times under load, and says what callers felt and what memory it took.
    Reloads(service::reloads::Arguments),
    /// Compares what a decision costs with one feature of the limiter on and with all off.
    Features(service::features::Arguments),
    /// Says whether one build of the server costs more than another.
    Ab(ab::Arguments),
    /// Adds a fixed delay to each direction of connections to other servers.
    DelayProxy(delay::command::Arguments),
    /// Writes one request body to stdout, framed for gRPC, for tools that post a file.
    Body(load::command::ShapeArguments),
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
        Command::Ratelimit(arguments) => load::command::run(*arguments).await,
        Command::Compare(arguments) => compare::run(arguments).await,
        Command::Ab(arguments) => ab::run(arguments).await,
        Command::Pipelining(arguments) => engine::pipelining::run(arguments).await,
        Command::Pipelines(arguments) => engine::pipelines::run(arguments).await,
        Command::RoundTrips(arguments) => service::round_trips::run(arguments).await,
        Command::Callers(arguments) => service::callers::run(arguments).await,
        Command::Connections(arguments) => engine::connections::run(arguments).await,
        Command::Workflow(arguments) => workflow::run(arguments).await,
        Command::Layout(arguments) => workflow::layout::run(&arguments),
        Command::Reloads(arguments) => service::reloads::run(arguments).await,
        Command::Features(arguments) => service::features::run(arguments).await,
        Command::Hostile(arguments) => hostile::run(arguments).await,
        Command::All(arguments) => publish::all(&arguments),
        Command::Tables(arguments) => publish::tables(&arguments),
        Command::DelayProxy(arguments) => delay::command::run(arguments),
        Command::Body(shape) => {
            let mut keys = load::Keys::new(load::Distribution::Sequence, 1, 0.0, 0);
            let body = load::Bodies::new(&shape.shape())?.next(&mut keys);
            std::io::stdout()
                .write_all(&body)
                .context("could not write the body")
        }
    }
}
