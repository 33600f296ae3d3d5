//! `tidegate-bench hostile`: what healthy callers feel while somebody attacks the server.
//!
//! Each attack has a server and a Redis of its own. Healthy callers ask at a fixed rate, first alone and then beside the attack.
//! On few cores, the attacker takes processor time from both: ratios are an upper bound.

mod attack;
mod frames;
mod watch;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};
use tidegate_pipeline::test_util::RedisServer;

use crate::figures::{self, Sheet, Table, Tally, finish, micros};
use crate::load::{Distribution, Keys, Load, Shape};
use crate::machine::Server;
use crate::machine::server::find;
use attack::{Attack, Target};
use watch::Watch;

/// Arguments of the subcommand.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The server's program.
    #[arg(long, default_value = "target/release/tidegate")]
    server: PathBuf,
    /// The attacks; all when none is named.
    #[arg(long, value_delimiter = ',')]
    attack: Vec<Attack>,
    /// How long healthy callers are measured, alone and beside each attack.
    #[arg(long, default_value = "3s", value_parser = figures::duration)]
    duration: Duration,
    /// Decisions a second that healthy callers ask for.
    #[arg(long, default_value_t = 1_000.0)]
    rate: f64,
    /// The part of each attack's size that is used: 0.1 for a tenth of its connections.
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// The folder that the figures go to as JSON.
    #[arg(long, default_value = "bench-results")]
    results: PathBuf,
}

/// After an attack, how long the server has to become what it was.
const REST: Duration = Duration::from_secs(2);

/// What was measured.
#[derive(Serialize, Deserialize)]
pub(crate) struct Results {
    rows: Vec<Row>,
}

/// What one attack did.
#[derive(Serialize, Deserialize)]
struct Row {
    attack: String,
    /// What the attacker got done: connections, calls, bytes.
    done: String,
    alone: Felt,
    attacked: Felt,
    resident_before: u64,
    resident_peak: u64,
    resident_after: u64,
    /// Hits that Redis has of all limits.
    charged: u64,
    /// Hits that the server's metrics have.
    counted: u64,
}

/// What healthy callers felt: microseconds, and calls.
#[derive(Serialize, Deserialize)]
struct Felt {
    p50: f64,
    p99: f64,
    p999: f64,
    answered: u64,
    failed: u64,
    behind: u64,
}

/// Measures, prints the table and writes the JSON.
pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    raise_file_limit();
    let server = find(&arguments.server)?;
    let named = if arguments.attack.is_empty() { Attack::all() } else { &arguments.attack };
    let mut rows = Vec::new();
    for attack in named {
        eprintln!("{attack}");
        rows.push(measure(*attack, &server, &arguments).await.with_context(|| format!("attack {attack}"))?);
    }
    finish(&Results { rows }, &arguments.results)
}

/// Attackers need as many descriptors as the system allows.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    // With fewer, the attack is smaller, and says so.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

async fn measure(attack: Attack, program: &Path, arguments: &Arguments) -> anyhow::Result<Row> {
    let folder = tempfile::tempdir()?;
    let redis = RedisServer::start().await;
    let environment = [("REDIS_URL", redis.address().to_string()), ("REDIS_SOCKET_TYPE", "tcp".to_owned())];
    let server = Server::start(program, folder.path(), &environment).await?;
    let target = Target::new(&server, arguments.scale).await?;
    let alone = felt(&server, arguments).await?;
    let watch = Watch::start(server.process());
    let before = server.process().resident_bytes()?;
    let attacking = attack.start(target);
    let attacked = felt(&server, arguments).await?;
    let done = attacking.stop()?;
    let peak = watch.stop()?;
    tokio::time::sleep(REST).await;
    Ok(Row {
        attack: attack.to_string(),
        done,
        alone,
        attacked,
        resident_before: before,
        resident_peak: peak.max(before),
        resident_after: server.process().resident_bytes()?,
        charged: charged(&redis),
        counted: counted(&server)?,
    })
}

/// Healthy callers for one turn.
async fn felt(server: &Server, arguments: &Arguments) -> anyhow::Result<Felt> {
    let load = Load {
        address: server.grpc(),
        connections: 4,
        streams: 16,
        shape: Shape { domain: "bench".into(), key: "key".into(), descriptors: 1, hits: 0 },
        keys: Keys::new(Distribution::Uniform, 1_000, 0.0, 1),
        rate: Some(arguments.rate),
        requests: None,
        warmup: Duration::from_millis(500),
        duration: arguments.duration,
    };
    let measured = load.run(None).await?;
    let time = |percent| micros(measured.tally.percentile(percent));
    Ok(Felt {
        p50: time(50.0),
        p99: time(99.0),
        p999: time(99.9),
        answered: Tally::decisions(&measured.tally),
        failed: measured.tally.failures(),
        behind: measured.behind,
    })
}

/// The sum of all counters.
fn charged(redis: &RedisServer) -> u64 {
    let script = "local sum = 0 for _, key in ipairs(redis.call('KEYS', 'bench_*')) do sum = sum + redis.call('GET', key) end return sum";
    let answer = redis.raw(&format!("EVAL \"{script}\" 0"));
    answer.trim().trim_start_matches(':').parse().unwrap_or(0)
}

/// The hits of all limits of the bench domain in the server's metrics.
fn counted(server: &Server) -> anyhow::Result<u64> {
    let stats = attack::get(server.debug(), "/stats")?;
    let hits = |line: &str| {
        let (name, value) = line.split_once(": ")?;
        let ours = name.starts_with("ratelimit.service.rate_limit.bench.") && name.ends_with(".total_hits");
        ours.then(|| value.trim().parse::<u64>().ok())?
    };
    Ok(stats.lines().filter_map(hits).sum())
}

impl figures::Results for Results {
    const NAME: &str = "hostile";

    fn tables(&self) -> Vec<Table> {
        let mut felt =
            Sheet::new(&["attack", "done", "p50 ms", "p99 ms", "p99.9 ms", "p99 ratio", "failed", "not sent"]);
        let mut held = Sheet::new(&["attack", "MB before", "peak", "after", "charged", "counted"]);
        for row in &self.rows {
            let pair = |time: fn(&Felt) -> f64| {
                format!("{:.2} / {:.2}", time(&row.alone) / 1_000.0, time(&row.attacked) / 1_000.0)
            };
            felt.row(vec![
                row.attack.clone(),
                row.done.clone(),
                pair(|felt| felt.p50),
                pair(|felt| felt.p99),
                pair(|felt| felt.p999),
                format!("{:.2}", row.attacked.p99 / row.alone.p99),
                row.attacked.failed.to_string(),
                row.attacked.behind.to_string(),
            ]);
            let bytes = [row.resident_before, row.resident_peak, row.resident_after];
            let mut cells = vec![row.attack.clone()];
            cells.extend(bytes.map(|bytes| (bytes / 1_000_000).to_string()));
            cells.extend([row.charged.to_string(), row.counted.to_string()]);
            held.row(cells);
        }
        vec![Table::new("hostile", felt), Table::new("hostile-memory", held)]
    }
}
