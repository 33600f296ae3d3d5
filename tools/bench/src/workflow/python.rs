//! Measures the worker of the Python SDK, alternately with a bare script on the same API and
//! workers of other systems.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tidegate_pipeline::test_util::RedisServer;

use super::BullMq;
use crate::figures::Table;
use crate::machine::{Store, Testbed, printed};
use crate::scenario::RunOptions;

/// Number of jobs of the small figures, in sequence.
const SEQUENTIAL_JOBS: usize = 200;
/// The Python interpreter with the peers, in their folder.
const PYTHON: &str = "python/.venv/bin/python";

/// A program that runs the jobs.
enum Worker {
    /// A worker on a server with this store, by its name in the script: `bare`, or a number of
    /// processes.
    Server(Store, &'static str),
    /// A worker of another system, by its name in the script.
    Peer(&'static str),
    BullMq,
}

const WORKERS: [(&str, Worker); 12] = [
    ("SDK, 1 process, memory", Worker::Server(Store::Memory, "1")),
    ("bare script, memory", Worker::Server(Store::Memory, "bare")),
    (
        "SDK, 1 process, SQLite",
        Worker::Server(Store::Embedded, "1"),
    ),
    (
        "bare script, SQLite",
        Worker::Server(Store::Embedded, "bare"),
    ),
    (
        "SDK, 4 processes, SQLite",
        Worker::Server(Store::Embedded, "4"),
    ),
    ("SDK, 1 process, Redis", Worker::Server(Store::Redis, "1")),
    ("bare script, Redis", Worker::Server(Store::Redis, "bare")),
    ("SDK, 4 processes, Redis", Worker::Server(Store::Redis, "4")),
    ("Celery, 16 threads, Redis", Worker::Peer("celery-threads")),
    ("Celery, 4 processes, Redis", Worker::Peer("celery-prefork")),
    ("taskiq, 4 processes, Redis", Worker::Peer("taskiq")),
    ("BullMQ, Redis", Worker::BullMq),
];

/// The figures of one turn, as a script prints them.
#[derive(Default, Deserialize)]
struct ScriptFigures {
    /// Seconds from the start of the first job to the end of the last one.
    seconds: f64,
    /// Time of 40 jobs of 10 ms in sequence, minus 400 ms.
    chain_ms: Option<f64>,
    /// Time from the call that creates a job to its handler.
    p50_ms: Option<f64>,
    p99_ms: Option<f64>,
    /// Version of another system.
    version: Option<String>,
}

/// Measures all workers whose programs are installed.
pub(super) async fn measure(options: &RunOptions, jobs: usize) -> Result<Table> {
    let mut table = Table::new("python", &["worker"]);
    for _ in options.rounds("Python workers") {
        for (name, worker) in WORKERS {
            let turn = worker.turn(options, jobs).await;
            let Some(turn) = turn.with_context(|| name.to_owned())? else {
                continue;
            };
            let version = turn.version.map(|version| format!(" ({version})"));
            let name = format!("{name}{}", version.unwrap_or_default());
            let mut row = table.row(&[&name]);
            row.add(&format!("{jobs} no-op jobs, s"), 2, turn.seconds);
            row.add("jobs/s", 0, jobs as f64 / turn.seconds);
            row.add("chain of 40, overhead, ms", 0, turn.chain_ms);
            row.add("create to handler p50, ms", 2, turn.p50_ms);
            row.add("create to handler p99, ms", 2, turn.p99_ms);
        }
    }
    Ok(table)
}

impl Worker {
    /// Returns `None` if the program of another system is not installed.
    async fn turn(self, options: &RunOptions, jobs: usize) -> Result<Option<ScriptFigures>> {
        match self {
            Self::Server(store, worker) => on_server(options, store, worker, jobs).await.map(Some),
            Self::Peer(peer) => {
                if options.peer(peer, PYTHON).is_none() {
                    return Ok(None);
                }
                let redis = RedisServer::start().await;
                let mut command = python(options, "peer.py");
                let (port, jobs) = (redis.port().to_string(), jobs.to_string());
                run_script(command.args([&port, peer, &jobs])).map(Some)
            }
            Self::BullMq => {
                let turn = BullMq::measure(options, jobs, 1).await?;
                Ok(turn.map(|turn| ScriptFigures {
                    seconds: jobs as f64 / turn.jobs_per_second,
                    version: Some(turn.version),
                    ..ScriptFigures::default()
                }))
            }
        }
    }
}

/// Runs a worker on a new server.
async fn on_server(
    options: &RunOptions,
    store: Store,
    worker: &str,
    jobs: usize,
) -> Result<ScriptFigures> {
    let testbed = Testbed::start(&options.program()?, store).await?;
    // The API is open later than the port that the testbed waits for.
    drop(testbed.connect().await?);
    let mut command = python(options, "measure.py");
    let sdk = options.peers.join("../../../sdk/python/src");
    command.env("PYTHONPATH", sdk.canonicalize()?);
    let url = format!("http://{}", testbed.server.api);
    let numbers = [jobs, SEQUENTIAL_JOBS.min(jobs)].map(|number| number.to_string());
    run_script(command.args([&url, worker]).args(numbers))
}

/// Returns the command of a script in the Python with the peers, or in that of the machine.
fn python(options: &RunOptions, script: &str) -> Command {
    let own = options.peers.join(PYTHON);
    let program = if own.exists() {
        own
    } else {
        PathBuf::from("python3")
    };
    let mut command = Command::new(program);
    command.arg(options.peers.join("python").join(script));
    command
}

/// Runs a script and reads the JSON that it prints.
pub(super) fn run_script<T: DeserializeOwned>(command: &mut Command) -> Result<T> {
    serde_json::from_str(&printed(command)?).context("a script printed something else")
}
