//! The worker of the Python SDK: beside a bare script on the same API, and beside workers of other systems, in turns.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};
use tidegate_pipeline::test_util::RedisServer;

use super::arguments::Arguments;
use crate::figures::{self, Sheet, Table, spread};
use crate::machine::{Store, Testbed};

/// Jobs of the small figures: one after the other.
const TURNS: usize = 200;

/// What was measured of a worker.
#[derive(Serialize, Deserialize)]
struct Worker {
    kind: Kind,
    /// Of another system.
    version: Option<String>,
    turns: Vec<Turn>,
}

/// Who runs the jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Kind {
    /// The SDK with so many processes, on a server with this store.
    Sdk(u32, Store),
    /// A script of one thread.
    Bare(Store),
    CeleryThreads,
    CeleryPrefork,
    Taskiq,
    BullMq,
}

/// What a script prints of one turn.
#[derive(Clone, Serialize, Deserialize)]
struct Turn {
    /// From the beginning of the first job to the end of the last one.
    seconds: f64,
    /// What 40 jobs of 10 ms, one after the other, take beyond 400 ms.
    chain_ms: Option<f64>,
    /// From the call that creates a job to its handler.
    p50_ms: Option<f64>,
    p99_ms: Option<f64>,
    #[serde(default, skip_serializing)]
    version: Option<String>,
}

/// What was measured.
#[derive(Serialize, Deserialize)]
pub(crate) struct Results {
    jobs: usize,
    workers: Vec<Worker>,
}

const KINDS: [Kind; 12] = [
    Kind::Sdk(1, Store::Memory),
    Kind::Bare(Store::Memory),
    Kind::Sdk(1, Store::Embedded),
    Kind::Bare(Store::Embedded),
    Kind::Sdk(4, Store::Embedded),
    Kind::Sdk(1, Store::Redis),
    Kind::Bare(Store::Redis),
    Kind::Sdk(4, Store::Redis),
    Kind::CeleryThreads,
    Kind::CeleryPrefork,
    Kind::Taskiq,
    Kind::BullMq,
];

impl Kind {
    fn name(self) -> String {
        let store = |store: Store| match store {
            Store::Memory => "memory",
            Store::Redis => "Redis",
            _ => "SQLite",
        };
        match self {
            Self::Sdk(1, on) => format!("SDK, 1 process, {}", store(on)),
            Self::Sdk(processes, on) => format!("SDK, {processes} processes, {}", store(on)),
            Self::Bare(on) => format!("bare script, {}", store(on)),
            Self::CeleryThreads => "Celery, 16 threads, Redis".to_owned(),
            Self::CeleryPrefork => "Celery, 4 processes, Redis".to_owned(),
            Self::Taskiq => "taskiq, 4 processes, Redis".to_owned(),
            Self::BullMq => "BullMQ, Redis".to_owned(),
        }
    }

    /// The package that must be there, in the folder of peers.
    fn needs(self) -> Option<&'static str> {
        match self {
            Self::Sdk(..) | Self::Bare(_) => None,
            Self::CeleryThreads | Self::CeleryPrefork | Self::Taskiq => {
                Some("python/.venv/bin/python")
            }
            Self::BullMq => Some("node_modules/bullmq/package.json"),
        }
    }
}

/// Measures all whose programs are there.
pub(crate) async fn measure(arguments: &Arguments) -> anyhow::Result<Results> {
    let is_there = |kind: &Kind| {
        let there = kind
            .needs()
            .is_none_or(|file| arguments.peers.join(file).exists());
        if !there {
            eprintln!(
                "{} is not in {} and left out",
                kind.name(),
                arguments.peers.display()
            );
        }
        there
    };
    let new = |kind| Worker {
        kind,
        version: None,
        turns: Vec::new(),
    };
    let mut workers: Vec<Worker> = KINDS.into_iter().filter(is_there).map(new).collect();
    for round in 1..=arguments.rounds {
        eprintln!("Python workers, round {round} of {}", arguments.rounds);
        for worker in &mut workers {
            let mut turn = worker
                .kind
                .turn(arguments)
                .await
                .with_context(|| worker.kind.name())?;
            worker.version = turn.version.take();
            worker.turns.push(turn);
        }
    }
    Ok(Results {
        jobs: arguments.executed,
        workers,
    })
}

impl Kind {
    async fn turn(self, arguments: &Arguments) -> anyhow::Result<Turn> {
        let (peers, jobs) = (&arguments.peers, arguments.executed);
        match self {
            Self::Sdk(processes, store) => {
                of_server(arguments, store, &processes.to_string()).await
            }
            Self::Bare(store) => of_server(arguments, store, "bare").await,
            Self::CeleryThreads => of_peer(peers, "celery-threads", jobs).await,
            Self::CeleryPrefork => of_peer(peers, "celery-prefork", jobs).await,
            Self::Taskiq => of_peer(peers, "taskiq", jobs).await,
            Self::BullMq => {
                let (jobs_per_second, version) = super::bullmq::work_off(arguments).await?;
                Ok(Turn::of(jobs as f64 / jobs_per_second, version))
            }
        }
    }
}

impl Turn {
    fn of(seconds: f64, version: String) -> Self {
        Self {
            seconds,
            chain_ms: None,
            p50_ms: None,
            p99_ms: None,
            version: Some(version),
        }
    }
}

async fn of_server(arguments: &Arguments, store: Store, worker: &str) -> anyhow::Result<Turn> {
    let testbed = Testbed::start(&arguments.server, store).await?;
    // The API is open later than the port that the testbed waits for.
    drop(super::api::Api::connect(testbed.server.api()).await?);
    let mut command = Command::new(python(&arguments.peers));
    command.env(
        "PYTHONPATH",
        arguments
            .peers
            .join("../../../sdk/python/src")
            .canonicalize()?,
    );
    command
        .arg(arguments.peers.join("python/measure.py"))
        .arg(format!("http://{}", testbed.server.api()))
        .arg(worker);
    printed(
        command.args(
            [arguments.executed, TURNS.min(arguments.executed)].map(|number| number.to_string()),
        ),
    )
}

async fn of_peer(peers: &Path, name: &str, jobs: usize) -> anyhow::Result<Turn> {
    let redis = RedisServer::start().await;
    let mut command = Command::new(python(peers));
    printed(command.arg(peers.join("python/peer.py")).args([
        &redis.port().to_string(),
        name,
        &jobs.to_string(),
    ]))
}

/// The Python with the peers, or that of the machine.
fn python(peers: &Path) -> std::path::PathBuf {
    let own = peers.join("python/.venv/bin/python");
    if own.exists() { own } else { "python3".into() }
}

/// Runs a script and reads what it printed.
fn printed(command: &mut Command) -> anyhow::Result<Turn> {
    let output = command.output().context("could not run Python")?;
    ensure!(
        output.status.success(),
        "the script failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).context("the script printed something else")
}

impl figures::Results for Results {
    const NAME: &str = "python";

    fn tables(&self) -> Vec<Table> {
        let title = format!("{} no-op jobs, s", self.jobs);
        let mut sheet = Sheet::new(&[
            "worker",
            &title,
            "jobs/s",
            "chain of 40, overhead, ms",
            "create to handler p50, ms",
            "p99, ms",
        ]);
        for worker in &self.workers {
            let all = |figure: &dyn Fn(&Turn) -> Option<f64>, digits| match worker
                .turns
                .iter()
                .all(|turn| figure(turn).is_some())
            {
                true => spread(worker.turns.iter().filter_map(figure), digits),
                false => "-".to_owned(),
            };
            let version = worker
                .version
                .as_ref()
                .map(|version| format!(" ({version})"))
                .unwrap_or_default();
            sheet.row(vec![
                worker.kind.name() + &version,
                all(&|turn| Some(turn.seconds), 2),
                all(&|turn| Some(self.jobs as f64 / turn.seconds), 0),
                all(&|turn| turn.chain_ms, 0),
                all(&|turn| turn.p50_ms, 2),
                all(&|turn| turn.p99_ms, 2),
            ]);
        }
        vec![Table::new("python", sheet)]
    }
}
