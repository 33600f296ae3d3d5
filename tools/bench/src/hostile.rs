//! `tidegate-bench hostile`: what healthy callers feel while somebody attacks the server.
//!
//! Each attack has a server and counters of its own. Healthy callers ask at a fixed rate: first alone, then beside the attack, then alone
//! again. On few cores, the attacker takes processor time from both: ratios are an upper bound.

mod attack;
mod bomb;
mod calls;
mod connections;
mod flood;
mod frames;
mod page;
mod row;
mod target;
mod watch;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tidegate_pipeline::test_util::RedisServer;

use crate::figures::{self, finish};
use crate::load::{Distribution, Keys, Load, Shape};
use crate::machine::Server;
use crate::machine::server::find;
use attack::{Attack, Counters};
use row::{Felt, Resident, Results, Row};
use target::Target;
use watch::Watch;

/// Arguments of the subcommand.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The server's program.
    #[arg(long, default_value = "target/release/tidegate")]
    server: PathBuf,
    /// The attacks; all when none is named.
    #[arg(long, value_delimiter = ',')]
    only: Vec<Attack>,
    /// How long healthy callers are measured before, during and after each attack.
    #[arg(long, default_value = "2s", value_parser = figures::duration)]
    turn: Duration,
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
const REST: Duration = Duration::from_secs(1);
/// Before each measurement.
const WARMUP: Duration = Duration::from_millis(300);

/// Limits that attackers use, beside those of the bench.
const CONFIGURATION: &str = "\
domain: hostile
descriptors:
  - key: minute
    rate_limit: { unit: minute, requests_per_unit: 5 }
  - key: day
    rate_limit: { unit: day, requests_per_unit: 5 }
  - key: named
    detailed_metric: true
    rate_limit: { unit: hour, requests_per_unit: 5 }
  - key: first
    rate_limit: { name: first, unit: hour, requests_per_unit: 5 }
  - key: second
    rate_limit: { name: second, unit: hour, requests_per_unit: 5, replaces: [{ name: first }] }
";

/// Measures, prints the tables and writes the JSON.
pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    raise_file_limit();
    let server = find(&arguments.server)?;
    let named = if arguments.only.is_empty() {
        Attack::all()
    } else {
        &arguments.only
    };
    let mut rows = Vec::new();
    for attack in named {
        eprintln!("{attack}");
        rows.push(
            measure(*attack, &server, &arguments)
                .await
                .with_context(|| format!("attack {attack}"))?,
        );
    }
    finish(&Results { rows }, &arguments.results)
}

/// Attackers need as many descriptors as the system allows.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    // With fewer, the attack is smaller, and says so.
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            ..limit
        },
    );
}

async fn measure(attack: Attack, program: &Path, arguments: &Arguments) -> anyhow::Result<Row> {
    let folder = tempfile::tempdir()?;
    let (redis, environment) = counters(attack.counters(arguments.scale)).await;
    let server = start(program, folder.path(), &environment).await?;
    let mut target = Target::new(&server, arguments.scale)?;
    attack.prepare(&mut target).await?;
    let before = felt(&server, arguments).await?;
    let resident = server.process().resident_bytes()?;
    let watch = Watch::start(server.process());
    let attacking = attack.start(target.clone());
    tokio::time::sleep(attack.rise()).await;
    let during = felt(&server, arguments).await?;
    attacking.finish()?;
    let peak = watch.stop()?.max(resident);
    tokio::time::sleep(REST).await;
    let after = felt(&server, arguments).await?;
    // The last calls of healthy callers may have been dropped before their end.
    tokio::time::sleep(REST).await;
    Ok(Row {
        attack: attack.to_string(),
        got: target.gains.take(),
        before,
        during,
        after,
        resident: Resident {
            before: resident,
            peak,
            after: server.process().resident_bytes()?,
        },
        charged: redis.as_ref().map(charged),
        counted: counted(&server)?,
        metrics_bytes: page::get(server.debug(), "/metrics")?.len(),
    })
}

/// A Redis where there is to be one, and the settings that say where counters are.
async fn counters(counters: Counters) -> (Option<RedisServer>, Vec<(&'static str, String)>) {
    match counters {
        Counters::Memory(room) => (None, vec![("TIDEGATE_MAX_KEYS", room.to_string())]),
        Counters::Redis => {
            let redis = RedisServer::start().await;
            let settings = vec![
                ("REDIS_URL", redis.address().to_string()),
                ("REDIS_SOCKET_TYPE", "tcp".to_owned()),
            ];
            (Some(redis), settings)
        }
    }
}

async fn start(
    program: &Path,
    folder: &Path,
    environment: &[(&str, String)],
) -> anyhow::Result<Server> {
    let configuration = folder.join("bench/config");
    std::fs::create_dir_all(&configuration).context("could not make the configuration folder")?;
    std::fs::write(configuration.join("hostile.yaml"), CONFIGURATION)
        .context("could not write the configuration")?;
    Server::start(program, folder, environment).await
}

/// Healthy callers for one turn.
async fn felt(server: &Server, arguments: &Arguments) -> anyhow::Result<Felt> {
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
        rate: Some(arguments.rate),
        requests: None,
        warmup: WARMUP,
        duration: arguments.turn,
    };
    Ok(Felt::of(&load.run(None).await?))
}

/// The sum of all counters of the bench.
fn charged(redis: &RedisServer) -> u64 {
    let script = "local sum = 0 for _, key in ipairs(redis.call('KEYS', 'bench_*')) do sum = sum + redis.call('GET', key) end return sum";
    let answer = redis.raw(&format!("EVAL \"{script}\" 0"));
    answer.trim().trim_start_matches(':').parse().unwrap_or(0)
}

/// The hits of all limits of the bench in the server's metrics.
fn counted(server: &Server) -> anyhow::Result<u64> {
    let stats = page::get(server.debug(), "/stats")?;
    let hits = |line: &str| {
        let (name, value) = line.split_once(": ")?;
        let ours = name.starts_with("ratelimit.service.rate_limit.bench.")
            && name.ends_with(".total_hits");
        ours.then(|| value.trim().parse::<u64>().ok())?
    };
    Ok(stats.lines().filter_map(hits).sum())
}
